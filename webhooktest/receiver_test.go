package webhooktest_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/base64"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outhook/webhook/verify"
	"github.com/outhook/webhook/webhooktest"
)

// post sends a body and returns the response with its body read.
func post(t *testing.T, url, body string) (*http.Response, string, error) {
	t.Helper()
	return send(t.Context(), newClient(t), url, body)
}

func newClient(t *testing.T) *http.Client {
	t.Helper()
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}
}

func send(ctx context.Context, client *http.Client, url, body string) (*http.Response, string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		return nil, "", err
	}
	req.Header.Set("webhook-id", "e1")
	req.Header.Set("webhook-attempt", "3")
	resp, err := client.Do(req)
	if err != nil {
		return nil, "", err
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	return resp, string(got), err
}

func TestAReceiverRecordsRequests(t *testing.T) {
	t.Parallel()
	r := webhooktest.NewReceiver(t)

	resp, _, err := post(t, r.URL+"/in?a=%20b", "{ }\n")
	require.NoError(t, err)
	assert.Equal(t, http.StatusOK, resp.StatusCode)

	got := r.RequireRequests(t, 1, time.Second)
	require.Len(t, got, 1)
	assert.Equal(t, 1, got[0].Number)
	assert.Equal(t, http.MethodPost, got[0].Method)
	assert.Equal(t, "/in?a=%20b", got[0].Path)
	assert.Equal(t, "{ }\n", string(got[0].Body))
	assert.Equal(t, "e1", got[0].ID())
	assert.Equal(t, "3", got[0].Attempt())
	assert.NoError(t, got[0].BodyErr)
	assert.Equal(t, 1, r.Connections())
}

func TestAReceiverAnswersInTurnAndThenStays(t *testing.T) {
	t.Parallel()
	r := webhooktest.NewReceiver(t)
	r.Respond(webhooktest.Status(500), webhooktest.Status(404), webhooktest.Reply(201, "text/plain", []byte("fine")))
	var statuses []int
	var last string
	for range 4 {
		resp, body, err := post(t, r.URL, "")
		require.NoError(t, err)
		statuses, last = append(statuses, resp.StatusCode), body
	}
	assert.Equal(t, []int{500, 404, 201, 201}, statuses)
	assert.Equal(t, "fine", last)
}

func TestAReceiverMisbehavesOnDemand(t *testing.T) {
	t.Parallel()

	t.Run("redirect", func(t *testing.T) {
		t.Parallel()
		r := webhooktest.NewReceiver(t)
		r.Respond(webhooktest.Redirect(302, "/login"))
		resp, _, err := post(t, r.URL, "")
		require.NoError(t, err)
		assert.Equal(t, 302, resp.StatusCode)
		assert.Equal(t, "/login", resp.Header.Get("Location"))
	})
	t.Run("too many requests", func(t *testing.T) {
		t.Parallel()
		r := webhooktest.NewReceiver(t)
		r.Respond(webhooktest.TooManyRequests(1500*time.Millisecond), webhooktest.TooManyRequests(0))
		resp, _, err := post(t, r.URL, "")
		require.NoError(t, err)
		assert.Equal(t, 429, resp.StatusCode)
		assert.Equal(t, "2", resp.Header.Get("Retry-After"))
		resp, _, err = post(t, r.URL, "")
		require.NoError(t, err)
		assert.Equal(t, 429, resp.StatusCode)
		assert.Empty(t, resp.Header.Values("Retry-After"))
	})
	t.Run("reset", func(t *testing.T) {
		t.Parallel()
		r := webhooktest.NewReceiver(t)
		r.Respond(webhooktest.Reset())
		_, _, err := post(t, r.URL, "")
		assert.ErrorIs(t, err, syscall.ECONNRESET)
	})
	t.Run("not HTTP", func(t *testing.T) {
		t.Parallel()
		r := webhooktest.NewReceiver(t)
		r.Respond(webhooktest.Raw([]byte("SSH-2.0-OpenSSH_9.2\r\n")))
		_, _, err := post(t, r.URL, "")
		assert.ErrorContains(t, err, "malformed HTTP")
	})
	t.Run("flapping", func(t *testing.T) {
		t.Parallel()
		r := webhooktest.NewReceiver(t)
		r.Respond(webhooktest.Flapping(webhooktest.Status(200), 2, webhooktest.Status(503), 1))
		var statuses []int
		for range 6 {
			resp, _, err := post(t, r.URL, "")
			require.NoError(t, err)
			statuses = append(statuses, resp.StatusCode)
		}
		assert.Equal(t, []int{200, 200, 503, 200, 200, 503}, statuses)
	})
	t.Run("hang", func(t *testing.T) {
		t.Parallel()
		r := webhooktest.NewReceiver(t)
		r.Respond(webhooktest.Hang())
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		_, _, err := send(ctx, newClient(t), r.URL, "")
		assert.ErrorIs(t, err, context.DeadlineExceeded)
	})
	t.Run("delay", func(t *testing.T) {
		t.Parallel()
		r := webhooktest.NewReceiver(t)
		r.Respond(webhooktest.Delay(time.Hour, webhooktest.Status(200)), webhooktest.Delay(time.Millisecond, webhooktest.Status(204)))
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		_, _, err := send(ctx, newClient(t), r.URL, "")
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		resp, _, err := post(t, r.URL, "")
		require.NoError(t, err)
		assert.Equal(t, 204, resp.StatusCode)
	})
	t.Run("drip", func(t *testing.T) {
		t.Parallel()
		r := webhooktest.NewReceiver(t)
		r.Respond(webhooktest.Drip(200, []byte("abc"), time.Millisecond), webhooktest.Drip(200, []byte("abc"), time.Hour))
		_, body, err := post(t, r.URL, "")
		require.NoError(t, err)
		assert.Equal(t, "abc", body)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		_, body, err = send(ctx, newClient(t), r.URL, "")
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Empty(t, body)
	})
	t.Run("drip of the header", func(t *testing.T) {
		t.Parallel()
		r := webhooktest.NewReceiver(t)
		r.Respond(webhooktest.DripHeader(time.Millisecond))
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, _, err := send(ctx, newClient(t), r.URL, "")
		assert.ErrorIs(t, err, context.DeadlineExceeded)
	})
}

func TestAReceiverHasACapacity(t *testing.T) {
	t.Parallel()
	r := webhooktest.NewReceiver(t)
	entered, release := make(chan struct{}), make(chan struct{})
	hold := webhooktest.Hold(release, webhooktest.Status(200))
	r.Respond(webhooktest.Capacity(2, func(w http.ResponseWriter, req *http.Request) {
		entered <- struct{}{}
		hold(w, req)
	}, webhooktest.Status(503)))
	client := newClient(t)
	statuses := make(chan int, 2)
	for range 2 {
		go func() {
			resp, _, err := send(t.Context(), client, r.URL, "")
			if err != nil {
				resp = &http.Response{}
			}
			statuses <- resp.StatusCode
		}()
		<-entered
	}

	resp, _, err := post(t, r.URL, "")
	require.NoError(t, err)
	assert.Equal(t, 503, resp.StatusCode)

	close(release)
	assert.Equal(t, []int{200, 200}, []int{<-statuses, <-statuses})
	_, most := r.InFlight()
	assert.Equal(t, 3, most)
}

func TestAReceiverVerifiesSignatures(t *testing.T) {
	t.Parallel()
	r := webhooktest.NewReceiver(t)
	secret := "whsec_" + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{7}, 32))
	r.Verify(t, secret)

	resp, _, err := post(t, r.URL, "{}")
	require.NoError(t, err)
	assert.Equal(t, http.StatusUnauthorized, resp.StatusCode)
	got := r.Requests()
	require.Len(t, got, 1)
	assert.ErrorIs(t, got[0].VerifyErr, verify.ErrMissingHeader)

	messages := probing(func(p webhooktest.TestingT) { r.Verify(p, "whsec_short") })
	require.Len(t, messages, 1)
	assert.NotContains(t, messages[0], "short")
}

func TestATLSReceiverIsTrustedByItsPool(t *testing.T) {
	t.Parallel()
	r := webhooktest.NewTLSReceiver(t)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: r.CertPool()}}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	resp, _, err := send(t.Context(), client, r.URL, "{}")
	require.NoError(t, err)
	assert.Equal(t, 200, resp.StatusCode)

	r.Respond(webhooktest.Reset())
	_, _, err = send(t.Context(), client, r.URL, "{}")
	assert.ErrorIs(t, err, syscall.ECONNRESET)

	_, _, err = post(t, r.URL, "{}")
	var untrusted *tls.CertificateVerificationError
	assert.ErrorAs(t, err, &untrusted, "got %v", err)
}

func TestWaitingForRequestsEnds(t *testing.T) {
	t.Parallel()
	messages := probing(func(p webhooktest.TestingT) {
		r := webhooktest.NewReceiver(p)
		r.RequireRequests(p, 1, time.Millisecond)
		p.Errorf("went on")
	})
	require.Len(t, messages, 1)
	assert.Contains(t, messages[0], "received 0 requests")
}

func TestClosingAReceiverEndsWhatHangs(t *testing.T) {
	t.Parallel()
	r := webhooktest.NewReceiver(t)
	r.Respond(webhooktest.Hang())
	ended := make(chan error, 1)
	client := newClient(t)
	go func() {
		_, _, err := send(t.Context(), client, r.URL, "")
		ended <- err
	}()
	r.RequireRequests(t, 1, 10*time.Second)
	r.Close()
	assert.Error(t, <-ended)
}
