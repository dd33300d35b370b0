package webhook_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outhook/webhook"
	"github.com/outhook/webhook/store/payloadfs"
	"github.com/outhook/webhook/webhooktest"
)

// payloadDir is a PayloadStore on a directory that can be taken away.
type payloadDir struct {
	*payloadfs.Store

	dir  string
	away atomic.Bool // no answer
	gets atomic.Int64
}

func newPayloadDir(t *testing.T) *payloadDir {
	t.Helper()
	dir := t.TempDir()
	store, err := payloadfs.Open(dir)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, store.Close()) })
	return &payloadDir{Store: store, dir: dir}
}

// small is a threshold under which tests stay with their small payloads.
const small = 100

// use makes a host keep payloads there.
func (p *payloadDir) use(c *webhook.Config) { c.PayloadStore, c.PayloadThreshold = p, small }

func (p *payloadDir) Put(ctx context.Context, key webhook.PayloadKey, payload []byte) error {
	if p.away.Load() {
		return errors.New("no answer")
	}
	return p.Store.Put(ctx, key, payload)
}

func (p *payloadDir) Get(ctx context.Context, key webhook.PayloadKey) ([]byte, error) {
	p.gets.Add(1)
	if p.away.Load() {
		return nil, errors.New("no answer")
	}
	return p.Store.Get(ctx, key)
}

func (p *payloadDir) file(tenant string, event uuid.UUID) string {
	return filepath.Join(p.dir, filepath.FromSlash(webhook.PayloadKey{Tenant: tenant, EventID: event}.String()))
}

// keys are those of all payloads that are kept.
func (p *payloadDir) keys(t *testing.T) (keys []webhook.PayloadKey) {
	t.Helper()
	for key, err := range p.List(t.Context()) {
		require.NoError(t, err)
		keys = append(keys, key)
	}
	return keys
}

// large is a payload over the threshold.
func large(mark string) string {
	return fmt.Sprintf(`{"mark": %q,  "filling": %q}`, mark, strings.Repeat("x", 3*small))
}

func TestALargePayloadIsKeptElsewhereAndSentByteForByte(t *testing.T) {
	t.Parallel()
	payloads := newPayloadDir(t)
	h := newHost(t, payloads.use, func(c *webhook.Config) {
		c.Redaction.Payload = func(e webhook.EventRecord) []byte {
			return bytes.ReplaceAll(e.Payload, []byte("secret"), []byte("…"))
		}
	})
	receiver := webhooktest.NewReceiver(t)
	e := h.endpoint(receiver.URL)
	receiver.Verify(t, e.Secret.Reveal())

	inside := h.enqueue(paid(`{"small":1}`))
	outside := h.enqueue(paid(large("secret")))
	assert.Equal(t, []webhook.PayloadKey{{Tenant: "acme", EventID: outside}}, payloads.keys(t))
	stored, err := h.hooks.Backend().GetEvent(t.Context(), acme, outside)
	require.NoError(t, err)
	assert.Empty(t, stored.Payload, "the database has no copy")
	assert.Equal(t, len(large("secret")), stored.PayloadSize())

	h.dispatch(webhook.DispatcherConfig{})
	h.settled(inside, 1)
	d := h.settled(outside, 1)[0]
	bodies := make(map[string]bool)
	for _, r := range receiver.Requests() {
		require.NoError(t, r.VerifyErr)
		bodies[string(r.Body)] = true
	}
	assert.Equal(t, map[string]bool{`{"small":1}`: true, large("secret"): true}, bodies)

	shown, err := h.hooks.Events().Get(t.Context(), acme, outside)
	require.NoError(t, err)
	assert.Equal(t, large("…"), string(shown.Payload), "shown as it is redacted")
	attempts, err := h.hooks.Deliveries().Attempts(t.Context(), acme, d.ID)
	require.NoError(t, err)
	again, err := h.hooks.Deliveries().Request(t.Context(), acme, attempts[0])
	require.NoError(t, err)
	for _, r := range receiver.Requests() {
		if string(r.Body) == large("secret") {
			assert.Equal(t, r.Header.Get("Webhook-Signature"), again.Header.Get("Webhook-Signature"))
		}
	}

	_, err = h.hooks.Deliveries().RetryNow(t.Context(), acme, d.ID)
	require.NoError(t, err)
	h.settled(outside, 2)
	assert.Equal(t, large("secret"), string(receiver.Requests()[2].Body))
}

func TestAPayloadThatCannotBePutLeavesTheTransactionAsItWas(t *testing.T) {
	t.Parallel()
	payloads := newPayloadDir(t)
	h := newHost(t, payloads.use)
	payloads.away.Store(true)
	tx := h.store.Begin()
	_, err := h.hooks.Enqueue(t.Context(), tx, paid(large("a")))
	require.ErrorContains(t, err, "no answer")
	_, err = h.hooks.EnqueueMany(t.Context(), tx, []webhook.Event{paid(`{}`), paid(large("b"))})
	require.ErrorContains(t, err, "no answer")
	assert.Empty(t, tx.Enqueued())
	payloads.away.Store(false)
	many := make([]webhook.Event, 30)
	for i := range many {
		many[i] = paid(large(fmt.Sprint(i)))
	}
	_, err = h.hooks.EnqueueMany(t.Context(), tx, many)
	require.NoError(t, err)
	require.NoError(t, tx.Commit())
	assert.Len(t, payloads.keys(t), len(many))
}

func TestThePayloadOfADuplicateDoesNotStay(t *testing.T) {
	t.Parallel()
	payloads := newPayloadDir(t)
	h := newHost(t, payloads.use)
	event := paid(large("a"))
	event.IdempotencyKey = "k"
	first := h.enqueue(event)
	assert.Equal(t, first, h.enqueue(event))
	assert.Equal(t, []webhook.PayloadKey{{Tenant: "acme", EventID: first}}, payloads.keys(t))
}

func TestAnEventForManyEndpointsIsReadOnce(t *testing.T) {
	t.Parallel()
	payloads := newPayloadDir(t)
	h := newHost(t, payloads.use)
	receiver := webhooktest.NewReceiver(t)
	const endpoints = 20
	for range endpoints {
		h.endpoint(receiver.URL)
	}
	event := h.enqueue(paid(large("a")))
	h.dispatch(webhook.DispatcherConfig{})
	h.settled(event, endpoints)
	assert.Equal(t, int64(1), payloads.gets.Load())
	for _, r := range receiver.Requests() {
		assert.Equal(t, large("a"), string(r.Body))
	}
}

// wants is a filter on the mark of a large payload.
func wants(mark string) func(*webhook.EndpointParams) {
	return func(p *webhook.EndpointParams) { p.Filter = []byte(`{"mark":` + fmt.Sprintf("%q", mark) + `}`) }
}

func TestFiltersLookAtPayloadsThatAreKeptElsewhere(t *testing.T) {
	t.Parallel()
	payloads := newPayloadDir(t)
	h := newHost(t, payloads.use)
	receiver := webhooktest.NewReceiver(t)
	wanting := h.endpoint(receiver.URL, wants("a"))
	h.endpoint(receiver.URL, wants("b"))
	event := h.enqueue(paid(large("a")))
	h.dispatch(webhook.DispatcherConfig{})
	assert.Equal(t, wanting.ID, h.settled(event, 1)[0].EndpointID)

	// Rematched by a replay job likewise.
	late := h.endpoint(receiver.URL, wants("a"))
	other := h.endpoint(receiver.URL, wants("b"))
	for endpoint, matched := range map[uuid.UUID]int{late.ID: 1, other.ID: 0} {
		estimate, err := h.hooks.Replays().DryRun(t.Context(), webhook.AllTenants(), webhook.ReplayJobRequest{
			EndpointID: endpoint, EventsFrom: time.Now().Add(-time.Hour), Rematch: true, States: []webhook.DeliveryState{webhook.StateDead},
		})
		require.NoError(t, err)
		assert.Equal(t, matched, estimate.Matched)
	}
}

func TestAFilterThatCannotBeAskedAtFanOutIsAskedWhenTheEventIsSent(t *testing.T) {
	t.Parallel()
	payloads := newPayloadDir(t)
	h, clock := newClockedHost(t, payloads.use)
	receiver := webhooktest.NewReceiver(t)
	wanting := h.endpoint(receiver.URL, wants("a"))
	other := h.endpoint(receiver.URL, wants("b"))
	event := h.enqueue(paid(large("a")))
	payloads.away.Store(true)
	h.dispatch(webhook.DispatcherConfig{})
	h.eventually("the event is fanned out, and held", func() bool {
		clock.Advance(100 * time.Millisecond)
		held := h.in(event, webhook.StatePending)
		return len(held) == 2 && held[0].LastClass == webhook.ClassInternal && held[1].LastClass == webhook.ClassInternal
	})
	payloads.away.Store(false)
	h.eventually("both end", func() bool {
		clock.Advance(time.Second)
		return len(h.in(event, webhook.StateDelivered)) == 1 && len(h.in(event, webhook.StateCancelled)) == 1
	})
	assert.Equal(t, wanting.ID, h.in(event, webhook.StateDelivered)[0].EndpointID)
	cancelled := h.in(event, webhook.StateCancelled)[0]
	assert.Equal(t, other.ID, cancelled.EndpointID)
	assert.Equal(t, webhook.ReasonFiltered, cancelled.Reason)

	_, err := h.hooks.Deliveries().RetryNow(t.Context(), acme, cancelled.ID)
	require.NoError(t, err)
	h.eventually("a run that was asked for is not filtered", func() bool {
		clock.Advance(time.Second)
		return len(h.in(event, webhook.StateDelivered)) == 2
	})
}

func TestAMissingOrDamagedPayloadHoldsTheDeliveryAndThenEndsIt(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		harm   func(t *testing.T, file string)
		fault  webhook.PayloadFault
		reason string
	}{
		"missing": {func(t *testing.T, file string) { require.NoError(t, os.Remove(file)) }, webhook.PayloadMissing, webhook.ReasonPayloadMissing},
		"damaged": {
			func(t *testing.T, file string) { require.NoError(t, os.WriteFile(file, []byte(large("b")), 0o600)) },
			webhook.PayloadDamaged, webhook.ReasonPayloadDamaged,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			payloads := newPayloadDir(t)
			h, clock := newClockedHost(t, payloads.use)
			receiver := webhooktest.NewReceiver(t)
			e := h.endpoint(receiver.URL)
			event := h.enqueue(paid(large("a")))
			c.harm(t, payloads.file("acme", event))
			h.dispatch(webhook.DispatcherConfig{})

			d, log := h.attempts(clock, event, 1)
			assert.Equal(t, webhook.StatePending, d.State, "it may be back soon")
			assert.Equal(t, webhook.ClassInternal, log[0].Class)
			assert.Contains(t, log[0].Error, "payload")
			assert.Zero(t, d.Attempts, "no retry is used up")
			shown, err := h.hooks.Events().Get(t.Context(), acme, event)
			require.NoError(t, err)
			assert.Equal(t, c.fault, shown.PayloadFault)
			assert.Empty(t, shown.Payload)
			assert.Equal(t, len(large("a")), shown.PayloadSize())
			_, err = h.hooks.Deliveries().Request(t.Context(), acme, log[0])
			require.Error(t, err)

			h.eventually("it ends", func() bool {
				clock.Advance(10 * time.Minute)
				return len(h.in(event, webhook.StateDead)) == 1
			})
			dead := h.in(event, webhook.StateDead)[0]
			assert.Equal(t, c.reason, dead.Reason)
			assert.GreaterOrEqual(t, dead.FinishedAt.Sub(dead.CreatedAt), 24*time.Hour)
			assert.Empty(t, receiver.Requests())
			health, err := h.hooks.Health().Endpoint(t.Context(), acme, e.ID)
			require.NoError(t, err)
			assert.Zero(t, health.ConsecutiveFailures, "it is not the endpoint's fault")

			require.NoError(t, payloads.Put(t.Context(), webhook.PayloadKey{Tenant: "acme", EventID: event}, []byte(large("a"))))
			_, err = h.hooks.Deliveries().RetryNow(t.Context(), acme, dead.ID)
			require.NoError(t, err)
			h.eventually("it is sent once it is back", func() bool {
				clock.Advance(time.Second)
				return len(h.in(event, webhook.StateDelivered)) == 1
			})
			assert.Equal(t, large("a"), string(receiver.Requests()[0].Body))
		})
	}
}

func TestADispatcherWithoutThePayloadStoreHoldsWhatItCannotRead(t *testing.T) {
	t.Parallel()
	payloads := newPayloadDir(t)
	clock := webhooktest.NewClock(time.Now())
	h := newHost(t, payloads.use, func(c *webhook.Config) { c.Clock = clock })
	h.store.SetNow(clock.Now)
	event := h.enqueue(paid(large("a")))
	receiver := webhooktest.NewReceiver(t)
	h.endpoint(receiver.URL)
	hooks, err := webhook.New(h.store, webhook.Config{Clock: clock, Secrets: webhook.InsecurePlaintext(), Transport: loopback(t)})
	require.NoError(t, err)
	t.Cleanup(hooks.Close)
	shown, err := hooks.Events().Get(t.Context(), acme, event)
	require.NoError(t, err)
	assert.Equal(t, webhook.PayloadUnreachable, shown.PayloadFault)
	require.ErrorContains(t, hooks.EraseTenant(t.Context(), "acme", webhook.EraseOptions{}), "PayloadStore is not set",
		"a payload that stays is not passed over in silence")
	require.NoError(t, h.hooks.EraseTenant(t.Context(), "acme", webhook.EraseOptions{}))
	assert.Empty(t, payloads.keys(t))
}

func TestPayloadsGoWithTheirEventsAndWithTransactionsThatRolledBack(t *testing.T) {
	t.Parallel()
	payloads := newPayloadDir(t)
	h, clock := newClockedHost(t, payloads.use)
	receiver := webhooktest.NewReceiver(t)
	h.endpoint(receiver.URL)
	kept := h.enqueue(paid(large("kept")))
	tx := h.store.Begin()
	rolled, err := h.hooks.Enqueue(t.Context(), tx, paid(large("rolled back")))
	require.NoError(t, err)
	require.NoError(t, tx.Rollback())
	require.Len(t, payloads.keys(t), 2, "nobody can know yet that it was rolled back")

	stop := h.dispatch(webhook.DispatcherConfig{})
	h.settled(kept, 1)
	stop()
	require.Len(t, payloads.keys(t), 2, "a transaction may be open for long")

	clock.Advance(49 * time.Hour)
	stop = h.dispatch(webhook.DispatcherConfig{})
	h.eventually("the orphan is removed", func() bool { return len(payloads.keys(t)) == 1 })
	stop()
	assert.NotEqual(t, rolled.EventID, payloads.keys(t)[0].EventID)

	clock.Advance(30 * 24 * time.Hour)
	h.dispatch(webhook.DispatcherConfig{})
	h.eventually("the payload of an event that is no longer kept is removed", func() bool { return len(payloads.keys(t)) == 0 })
	_, err = h.hooks.Events().Get(t.Context(), acme, kept)
	require.ErrorIs(t, err, webhook.ErrNotFound)
}

// slowDeletes keeps payloads that nobody can delete for a while.
type slowDeletes struct {
	*payloadDir
	stuck atomic.Bool
	mu    sync.Mutex
	tried map[uuid.UUID]int
}

func (s *slowDeletes) Delete(ctx context.Context, key webhook.PayloadKey) error {
	s.mu.Lock()
	s.tried[key.EventID]++
	s.mu.Unlock()
	if s.stuck.Load() {
		return errors.New("read only")
	}
	return s.Store.Delete(ctx, key)
}

func TestAPayloadThatCannotBeRemovedIsRemovedLater(t *testing.T) {
	t.Parallel()
	payloads := &slowDeletes{payloadDir: newPayloadDir(t), tried: make(map[uuid.UUID]int)}
	h := newHost(t, func(c *webhook.Config) { c.PayloadStore, c.PayloadThreshold = payloads, small })
	h.endpoint("http://127.0.0.1:1024/in")
	for range 3 {
		h.enqueue(paid(large("a")))
	}
	payloads.stuck.Store(true)
	require.ErrorContains(t, h.hooks.EraseTenant(t.Context(), "acme", webhook.EraseOptions{}), "read only")
	assert.Len(t, payloads.tried, 3, "one does not hold the others up")
	payloads.stuck.Store(false)
	require.NoError(t, h.hooks.EraseTenant(t.Context(), "acme", webhook.EraseOptions{}))
	assert.Empty(t, payloads.keys(t))
}

func TestHowLargeAPayloadMayBe(t *testing.T) {
	t.Parallel()
	payloads := newPayloadDir(t)
	with := newHost(t, func(c *webhook.Config) { c.PayloadStore = payloads })
	without := newHost(t)
	of := func(n int) webhook.Event { return paid(`"` + strings.Repeat("x", n-2) + `"`) }
	enqueue := func(h *host, e webhook.Event) error {
		tx := h.store.Begin()
		defer func() { _ = tx.Rollback() }()
		_, err := h.hooks.Enqueue(t.Context(), tx, e)
		return err
	}
	require.NoError(t, enqueue(with, of(webhook.DefaultPayloadThreshold)))
	assert.Empty(t, payloads.keys(t))
	require.NoError(t, enqueue(with, of(webhook.DefaultPayloadThreshold+1)))
	assert.Len(t, payloads.keys(t), 1)
	require.NoError(t, enqueue(with, of(webhook.DefaultMaxStoredPayload)))
	require.ErrorIs(t, enqueue(with, of(webhook.DefaultMaxStoredPayload+1)), webhook.ErrPayloadTooLarge)
	require.NoError(t, enqueue(without, of(webhook.DefaultMaxPayload)))
	require.ErrorIs(t, enqueue(without, of(webhook.DefaultMaxPayload+1)), webhook.ErrPayloadTooLarge)

	for field, cfg := range map[string]webhook.Config{
		"Config.PayloadThreshold": {PayloadThreshold: 1},
		"Config.MaxPayload":       {MaxPayload: -1},
	} {
		cfg.Secrets = webhook.InsecurePlaintext()
		_, err := webhook.New(webhooktest.NewStore(), cfg)
		var refused *webhook.InvalidError
		require.ErrorAs(t, err, &refused)
		assert.Equal(t, field, refused.Field)
	}
	_, err := webhook.New(webhooktest.NewStore(), webhook.Config{Secrets: webhook.InsecurePlaintext(), PayloadStore: payloads, PayloadThreshold: -1})
	require.ErrorIs(t, err, webhook.ErrInvalid)
}
