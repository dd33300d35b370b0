package egress_test

import (
	"crypto/x509"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

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

// net/http closes the connection of a refused write; its reader then fails as well, and
// which of the two the caller hears of is chance.
func TestARefusalIsNotTakenForADeadConnection(t *testing.T) {
	t.Parallel()
	srv := receiver(t, func(http.ResponseWriter, *http.Request) {})
	tr := newTransport(t, loopback(), egress.TransportConfig{})
	c, err := egress.NewClient(egress.ClientConfig{Guard: tr.Guard(), Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
		resp, err := tr.RoundTrip(r)
		if err != nil {
			return nil, syscall.ECONNRESET // of the reader
		}
		return resp, nil
	})})
	require.NoError(t, err)
	late, asked := errors.New("too late"), 0

	assert.Equal(t, egress.ClassNone, post(t, c, srv.URL).Class)
	res := c.Do(t.Context(), egress.Request{URL: srv.URL, Body: []byte("{}"), BeforeWrite: func() error {
		asked++
		return late
	}})

	assert.Equal(t, egress.ClassCancelled, res.Class)
	assert.ErrorIs(t, res.Err, late)
	assert.False(t, res.Resent)
	assert.Equal(t, 1, asked)
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
