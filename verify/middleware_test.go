package verify

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func v1Request(body string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "/in", strings.NewReader(body))
	r.Header = v1Headers(v1Sig)
	return r
}

func serve(h http.Handler, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// accept is a handler that counts its calls and answers with a status.
type accept struct {
	status int
	mu     sync.Mutex
	calls  int
}

func (a *accept) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.calls++
	if a.status != 0 {
		w.WriteHeader(a.status)
	}
}

func TestTheHandlerReadsTheRawBodyOfAVerifiedRequest(t *testing.T) {
	t.Parallel()
	var got []byte
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		assert.NoError(t, err)
		assert.EqualValues(t, len(body), r.ContentLength)
		got = body
		m, ok := FromContext(r.Context())
		assert.True(t, ok)
		assert.Equal(t, Message{ID: v1ID, Timestamp: time.Unix(v1Time, 0), Body: []byte(v1Body)}, m)
		w.WriteHeader(http.StatusAccepted)
	})
	w := serve(newVerifier(t, Config{}).Middleware(handler), v1Request(v1Body))
	assert.Equal(t, http.StatusAccepted, w.Code)
	assert.Equal(t, v1Body, string(got))

	_, ok := FromContext(t.Context())
	assert.False(t, ok)
}

func TestAChunkedBodyOverARealConnectionVerifies(t *testing.T) {
	t.Parallel()
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) })
	server := httptest.NewServer(newVerifier(t, Config{}).Middleware(handler))
	defer server.Close()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL, io.MultiReader(strings.NewReader(v1Body)))
	require.NoError(t, err)
	r.Header = v1Headers(v1Sig)
	resp, err := server.Client().Do(r)
	require.NoError(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	assert.Equal(t, http.StatusOK, resp.StatusCode)
	assert.Equal(t, v1Body, string(body))
}

func TestRefusalsHaveTheirStatusAndTheHandlerIsNotCalled(t *testing.T) {
	t.Parallel()
	cut := v1Request(v1Body)
	cut.Body = io.NopCloser(io.MultiReader(strings.NewReader(v1Body[:5]), brokenReader{}))
	missing := v1Request(v1Body)
	missing.Header.Del("webhook-signature")
	malformed := v1Request(v1Body)
	malformed.Header.Set("webhook-timestamp", "soon")
	tests := map[string]struct {
		request *http.Request
		now     int64
		status  int
	}{
		"mismatch":  {v1Request("{}"), v1Time, 401},
		"too old":   {v1Request(v1Body), v1Time + 301, 401},
		"too new":   {v1Request(v1Body), v1Time - 301, 401},
		"missing":   {missing, v1Time, 400},
		"malformed": {malformed, v1Time, 400},
		"cut":       {cut, v1Time, 400},
	}
	for name, tt := range tests {
		handler := &accept{}
		w := serve(newVerifier(t, Config{Now: at(tt.now)}).Middleware(handler), tt.request)
		assert.Equal(t, tt.status, w.Code, name)
		assert.Contains(t, w.Body.String(), "verify: ", name)
		assert.NotContains(t, w.Body.String(), "disk on fire", name)
		assert.Zero(t, handler.calls, name)
	}
}

type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, errors.New("disk on fire") }

func TestABodyOverTheLimitIsA413(t *testing.T) {
	t.Parallel()
	limit := int64(len(v1Body))
	handler := &accept{}
	exact := newVerifier(t, Config{MaxBody: limit}).Middleware(handler)
	assert.Equal(t, 200, serve(exact, v1Request(v1Body)).Code, "a body at the limit is read")

	small := newVerifier(t, Config{MaxBody: limit - 1}).Middleware(handler)
	assert.Equal(t, 413, serve(small, v1Request(v1Body)).Code, "said in Content-Length")

	chunked := v1Request(v1Body)
	chunked.ContentLength = -1
	assert.Equal(t, 413, serve(small, chunked).Code, "found while reading")
	assert.Equal(t, 1, handler.calls)

	huge := v1Request(v1Body)
	huge.ContentLength = 1 << 62
	unlimited := newVerifier(t, Config{MaxBody: 1<<63 - 1}).Middleware(handler)
	assert.Equal(t, 200, serve(unlimited, huge).Code, "a claimed length takes no memory")
}

func TestTheBodyOfARequestWithoutSignatureIsNotRead(t *testing.T) {
	t.Parallel()
	body := &countingReader{}
	r := httptest.NewRequest(http.MethodPost, "/in", body)
	assert.Equal(t, 400, serve(newVerifier(t, Config{}).Middleware(&accept{}), r).Code)
	assert.Zero(t, body.reads)

	nobody := v1Request("")
	nobody.Body = nil
	assert.Equal(t, 401, serve(newVerifier(t, Config{}).Middleware(&accept{}), nobody).Code)
}

type countingReader struct{ reads int }

func (c *countingReader) Read([]byte) (int, error) { c.reads++; return 0, io.EOF }

func TestMiddlewarePanicsAtTheStartIfASecretIsMalformed(t *testing.T) {
	t.Parallel()
	assert.Panics(t, func() { Middleware() })
	assert.Panics(t, func() { Middleware("whsec_") })
	assert.Equal(t, 401, serve(Middleware(v1Secret)(&accept{}), v1Request(v1Body)).Code, "the vector is years old")
}

func TestOnErrorTakesOverTheAnswer(t *testing.T) {
	t.Parallel()
	v := newVerifier(t, Config{OnError: func(w http.ResponseWriter, _ *http.Request, err error) {
		assert.ErrorIs(t, err, ErrMismatch)
		w.WriteHeader(http.StatusTeapot)
	}})
	assert.Equal(t, http.StatusTeapot, serve(v.Middleware(&accept{}), v1Request("{}")).Code)
}

func TestAHandledMessageIsAnsweredWithoutTheHandler(t *testing.T) {
	t.Parallel()
	handler := &accept{status: http.StatusNoContent}
	h := newVerifier(t, Config{Dedupe: Dedupe{Store: NewMemoryStore(0)}}).Middleware(handler)
	assert.Equal(t, http.StatusNoContent, serve(h, v1Request(v1Body)).Code)
	assert.Equal(t, http.StatusOK, serve(h, v1Request(v1Body)).Code)
	assert.Equal(t, 1, handler.calls)

	forged := v1Request("{}")
	assert.Equal(t, 401, serve(h, forged).Code, "only a verified message is looked up")

	replay := v1Request(v1Body)
	replay.Header.Set("webhook-replay", "true")
	assert.Equal(t, http.StatusOK, serve(h, replay).Code)
	assert.Equal(t, 1, handler.calls, "no signature covers the mark of a replay")
}

func TestAMessageWhoseHandlerFailedIsLetThroughAgain(t *testing.T) {
	t.Parallel()
	handler := &accept{status: http.StatusInternalServerError}
	h := newVerifier(t, Config{Dedupe: Dedupe{Store: NewMemoryStore(0)}}).Middleware(handler)
	assert.Equal(t, 500, serve(h, v1Request(v1Body)).Code)
	handler.status = 0
	assert.Equal(t, 200, serve(h, v1Request(v1Body)).Code)
	assert.Equal(t, 200, serve(h, v1Request(v1Body)).Code)
	assert.Equal(t, 2, handler.calls)
}

func TestAMessageWhoseHandlerPanickedIsLetThroughAgain(t *testing.T) {
	t.Parallel()
	calls := 0
	h := newVerifier(t, Config{Dedupe: Dedupe{Store: NewMemoryStore(0)}}).Middleware(
		http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			calls++
			w.WriteHeader(http.StatusOK)
			panic(http.ErrAbortHandler)
		}))
	for range 2 {
		assert.PanicsWithValue(t, http.ErrAbortHandler, func() { serve(h, v1Request(v1Body)) })
	}
	assert.Equal(t, 2, calls)
}

func TestAMessageInProgressIsNotConfirmed(t *testing.T) {
	t.Parallel()
	started, finish := make(chan struct{}), make(chan struct{})
	h := newVerifier(t, Config{Dedupe: Dedupe{Store: NewMemoryStore(0)}}).Middleware(
		http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			close(started)
			<-finish
			_, _ = w.Write([]byte("done"))
		}))
	var wg sync.WaitGroup
	wg.Go(func() { assert.Equal(t, 200, serve(h, v1Request(v1Body)).Code) })
	<-started
	assert.Equal(t, http.StatusConflict, serve(h, v1Request(v1Body)).Code)
	close(finish)
	wg.Wait()
	assert.Equal(t, 200, serve(h, v1Request(v1Body)).Code)
}

func TestTheStoreLearnsOfASuccessAfterTheSenderHungUp(t *testing.T) {
	t.Parallel()
	store := NewMemoryStore(0)
	ctx, cancel := context.WithCancel(t.Context())
	h := newVerifier(t, Config{Dedupe: Dedupe{Store: contextStore{store}}}).Middleware(
		http.HandlerFunc(func(http.ResponseWriter, *http.Request) { cancel() }))
	serve(h, v1Request(v1Body).WithContext(ctx))
	result, err := store.Claim(t.Context(), v1ID, time.Minute)
	require.NoError(t, err)
	assert.Equal(t, Handled, result)
}

// contextStore fails as a database does when its context has ended.
type contextStore struct{ *MemoryStore }

func (s contextStore) Complete(ctx context.Context, id string, keep time.Duration) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return s.MemoryStore.Complete(ctx, id, keep)
}

func TestAReplayIsLetThroughIfTheReceiverWantsThat(t *testing.T) {
	t.Parallel()
	handler := &accept{}
	h := newVerifier(t, Config{Dedupe: Dedupe{Store: NewMemoryStore(0), Replays: true}}).Middleware(handler)
	replay := v1Request(v1Body)
	replay.Header.Set("webhook-replay", "true")
	serve(h, v1Request(v1Body))
	serve(h, v1Request(v1Body))
	serve(h, replay)
	assert.Equal(t, 2, handler.calls)
}

func TestAFailingStoreMakesTheSenderComeAgain(t *testing.T) {
	t.Parallel()
	handler := &accept{}
	h := newVerifier(t, Config{Dedupe: Dedupe{Store: failingStore{}}}).Middleware(handler)
	w := serve(h, v1Request(v1Body))
	assert.Equal(t, http.StatusServiceUnavailable, w.Code)
	assert.NotContains(t, w.Body.String(), "disk on fire")
	assert.Zero(t, handler.calls)

	var log bytes.Buffer
	h = newVerifier(t, Config{
		Dedupe: Dedupe{Store: failingStore{claims: true}}, Logger: slog.New(slog.NewTextHandler(&log, nil)),
	}).Middleware(handler)
	assert.Equal(t, 200, serve(h, v1Request(v1Body)).Code)
	assert.Contains(t, log.String(), "disk on fire")
}

type failingStore struct{ claims bool }

func (s failingStore) Claim(context.Context, string, time.Duration) (ClaimResult, error) {
	if s.claims {
		return Claimed, nil
	}
	return 0, errors.New("disk on fire")
}

func (failingStore) Complete(context.Context, string, time.Duration) error {
	return errors.New("disk on fire")
}

func (failingStore) Release(context.Context, string) error { return errors.New("disk on fire") }

func TestDedupeNeedsAnIDAndSensibleTimes(t *testing.T) {
	t.Parallel()
	store := NewMemoryStore(0)
	_, err := New(Config{Scheme: Stripe{}, Secrets: []string{"s"}, Dedupe: Dedupe{Store: store}})
	require.ErrorContains(t, err, "Dedupe.MessageID")
	_, err = New(Config{Secrets: []string{v1Secret}, Dedupe: Dedupe{Store: store, Lease: -1}})
	require.Error(t, err)

	handler := &accept{}
	v, err := New(Config{
		Scheme: Stripe{}, Secrets: []string{"whsec_test_secret"}, Now: at(1700000000),
		Dedupe: Dedupe{Store: store, MessageID: func(_ http.Header, body []byte) string {
			if bytes.Contains(body, []byte("evt_test_webhook")) {
				return "evt_test_webhook"
			}
			return ""
		}},
	})
	require.NoError(t, err)
	for range 2 {
		r := httptest.NewRequest(http.MethodPost, "/in", strings.NewReader(stripeBody))
		r.Header.Set("Stripe-Signature", "t=1700000000,"+stripeV1)
		assert.Equal(t, 200, serve(v.Middleware(handler), r).Code)
	}
	assert.Equal(t, 1, handler.calls)
}

func TestAHandlerBehindDedupeCanStillFlush(t *testing.T) {
	t.Parallel()
	h := newVerifier(t, Config{Dedupe: Dedupe{Store: NewMemoryStore(0)}}).Middleware(
		http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusEarlyHints) // not the answer yet
			w.WriteHeader(http.StatusAccepted)
			assert.NoError(t, http.NewResponseController(w).Flush())
		}))
	assert.True(t, serve(h, v1Request(v1Body)).Flushed)
}

func TestTheMemoryStoreForgetsInTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, ctx := NewMemoryStore(0), t.Context()
		claim := func(id string) ClaimResult {
			result, err := store.Claim(ctx, id, time.Minute)
			require.NoError(t, err)
			return result
		}
		assert.Equal(t, Claimed, claim("a"))
		assert.Equal(t, InProgress, claim("a"))
		time.Sleep(time.Minute)
		assert.Equal(t, Claimed, claim("a"), "its lease has ended")
		require.NoError(t, store.Complete(ctx, "a", time.Hour))
		assert.Equal(t, Handled, claim("a"))
		require.NoError(t, store.Release(ctx, "a"))
		assert.Equal(t, Handled, claim("a"), "a late release does not undo what was handled")
		require.NoError(t, store.Release(ctx, "unknown"))
		time.Sleep(time.Hour)
		assert.Equal(t, Claimed, claim("a"))

		time.Sleep(time.Minute)
		claim("b")
		assert.Len(t, store.byID, 1, "what has expired is dropped")
	})
}

func TestTheMemoryStoreIsBounded(t *testing.T) {
	t.Parallel()
	store := NewMemoryStore(10)
	for i := range 100 {
		id := string(rune('a' + i))
		_, _ = store.Claim(t.Context(), id, time.Hour)
		_ = store.Complete(t.Context(), id, time.Hour)
	}
	assert.Len(t, store.byID, 10)
	assert.Equal(t, 10, store.order.Len())
	result, _ := store.Claim(t.Context(), string(rune('a'+99)), time.Hour)
	assert.Equal(t, Handled, result, "the newest are kept")
}

func TestTheMemoryStoreClaimsOnceAmongMany(t *testing.T) {
	t.Parallel()
	store := NewMemoryStore(0)
	results := make(chan ClaimResult, 50)
	var wg sync.WaitGroup
	for range cap(results) {
		wg.Go(func() {
			result, _ := store.Claim(t.Context(), "a", time.Hour)
			results <- result
		})
	}
	wg.Wait()
	close(results)
	claimed := 0
	for result := range results {
		if result == Claimed {
			claimed++
		}
	}
	assert.Equal(t, 1, claimed)
}
