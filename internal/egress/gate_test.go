package egress_test

import (
	"crypto/x509"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/outhook/webhook/internal/egress"
)

func TestARequestThatIsRefusedBeforeItIsWrittenNeverLeaves(t *testing.T) {
	t.Parallel()
	for name, serve := range map[string]func(http.Handler) *httptest.Server{
		"http": httptest.NewServer, "https": httptest.NewTLSServer,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var arrived atomic.Int32
			srv := serve(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { arrived.Add(1) }))
			t.Cleanup(srv.Close)
			roots := x509.NewCertPool()
			if cert := srv.Certificate(); cert != nil {
				roots.AddCert(cert)
			}
			c := newClient(t, loopback(), egress.TransportConfig{RootCAs: roots})
			late := errors.New("too late")
			refused := egress.Request{URL: srv.URL, Body: []byte("{}"), BeforeWrite: func() error { return late }}

			fresh := c.Do(t.Context(), refused)
			assert.Equal(t, egress.ClassNone, post(t, c, srv.URL).Class)
			pooled := c.Do(t.Context(), refused)

			for _, res := range []egress.Result{fresh, pooled} {
				assert.Equal(t, egress.ClassCancelled, res.Class)
				assert.ErrorIs(t, res.Err, late)
				assert.False(t, res.Resent)
			}
			assert.Equal(t, egress.ClassNone, post(t, c, srv.URL).Class, "others go on")
			assert.EqualValues(t, 2, arrived.Load())
		})
	}
}

func TestARequestIsNotWrittenAfterItsTime(t *testing.T) {
	t.Parallel()
	var arrived atomic.Int32
	srv := receiver(t, func(http.ResponseWriter, *http.Request) { arrived.Add(1) })
	c := newClient(t, loopback(), egress.TransportConfig{})
	limit := 20 * time.Millisecond
	began := time.Now()
	res := c.Do(t.Context(), egress.Request{URL: srv.URL, Body: []byte("{}"), Timeout: limit, BeforeWrite: func() error {
		for time.Since(began) <= limit {
			time.Sleep(limit) // a process that stands still here
		}
		return nil
	}})
	assert.Equal(t, egress.ClassTimeout, res.Class)
	assert.Zero(t, arrived.Load())
}
