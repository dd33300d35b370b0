package payload_test

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	_ "modernc.org/sqlite"

	"github.com/outhook/webhook"
	"github.com/outhook/webhook/internal/pgtest"
	"github.com/outhook/webhook/store/payloadfs"
	"github.com/outhook/webhook/store/postgres"
	"github.com/outhook/webhook/store/sqlite"
	"github.com/outhook/webhook/webhooktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestOnPostgreSQL(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	store := postgres.New(pool)
	require.NoError(t, store.Migrate(t.Context()))
	lifeOfAPayload(newWorld(t, store, func(ctx context.Context, f func(pgx.Tx) error) error { return pgx.BeginFunc(ctx, pool, f) }))
}

func TestOnSQLite(t *testing.T) {
	t.Parallel()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "app.db")+"?_pragma=busy_timeout(30000)&_txlock=immediate&_pragma=journal_mode(wal)&_pragma=synchronous(off)")
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, db.Close()) })
	store := sqlite.New(db)
	require.NoError(t, store.Migrate(t.Context()))
	lifeOfAPayload(newWorld(t, store, func(ctx context.Context, f func(*sql.Tx) error) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		if err := f(tx); err != nil {
			_ = tx.Rollback()
			return err
		}
		return tx.Commit()
	}))
}

// lifeOfAPayload enqueues large payloads in transactions that commit and that roll back,
// delivers, replays, loses and finds them, and removes them with what they belong to.
func lifeOfAPayload(w *world) {
	t := w.t
	e := w.endpoint("acme", "hooks.example", "")
	w.endpoint("acme", "picky.example", `{"mark": "else"}`)
	w.endpoint("umbrella", "other.example", "")

	small, sent := w.enqueue("acme", `{"mark":"small"}`), w.enqueue("acme", large("sent"))
	lost, other := w.enqueue("acme", large("lost")), w.enqueue("umbrella", large("other"))
	require.ErrorIs(t, w.begin(func(enqueue func(webhook.Event) uuid.UUID) error {
		enqueue(event("acme", large("rolled back")))
		return errRollBack
	}), errRollBack)
	require.Len(t, w.files(), 4)
	require.NoError(t, os.Remove(w.file("acme", lost)))

	stop := w.dispatch()
	w.until(100*time.Millisecond, func(c *assert.CollectT) {
		assert.ElementsMatch(c, []string{`{"mark":"small"}`, large("sent")}, w.got("hooks.example"))
		assert.Equal(c, []string{large("other")}, w.got("other.example"))
		held := w.deliveries(c, e.ID, lost)
		require.Len(c, held, 1)
		assert.Equal(c, webhook.StatePending, held[0].State)
		assert.Equal(c, webhook.ClassInternal, held[0].LastClass)
	})
	assert.Empty(t, w.got("picky.example"))
	shown, err := w.hooks.Events().Get(t.Context(), webhook.AllTenants(), sent)
	require.NoError(t, err)
	assert.Equal(t, large("sent"), string(shown.Payload))
	shown, err = w.hooks.Events().Get(t.Context(), webhook.AllTenants(), lost)
	require.NoError(t, err)
	assert.Equal(t, webhook.PayloadMissing, shown.PayloadFault)
	stop()

	// Two days later the lost one is dead, and nobody refers to what was rolled back.
	w.clock.Advance(49 * time.Hour)
	stop = w.dispatch()
	w.until(time.Second, func(c *assert.CollectT) {
		dead := w.deliveries(c, e.ID, lost)
		require.Len(c, dead, 1)
		assert.Equal(c, webhook.ReasonPayloadMissing, dead[0].Reason)
		assert.Len(c, w.files(), 2)
	})
	require.NoError(t, w.payloads.Put(t.Context(), webhook.PayloadKey{Tenant: "acme", EventID: lost}, []byte(large("lost"))))
	for _, id := range []uuid.UUID{lost, sent, small} {
		_, err := w.hooks.Deliveries().Replay(t.Context(), webhook.AllTenants(), webhook.ReplayRequest{EventID: id, EndpointID: e.ID})
		require.NoError(t, err)
	}
	w.until(100*time.Millisecond, func(c *assert.CollectT) {
		assert.ElementsMatch(c, []string{`{"mark":"small"}`, large("sent"), `{"mark":"small"}`, large("sent"), large("lost")}, w.got("hooks.example"))
		for _, d := range w.deliveries(c, e.ID, lost) {
			require.True(c, d.State.Final())
		}
	})
	stop()

	// Of an erased tenant nothing stays, and what is another's does.
	require.NoError(t, w.hooks.EraseTenant(t.Context(), "acme", webhook.EraseOptions{}))
	assert.Equal(t, []string{w.file("umbrella", other)}, w.files())

	// A month later its event goes, and the payload with it.
	w.clock.Advance(30 * 24 * time.Hour)
	w.dispatch()
	w.until(time.Second, func(c *assert.CollectT) { assert.Empty(c, w.files()) })
	_, err = w.hooks.Events().Get(t.Context(), webhook.AllTenants(), other)
	require.ErrorIs(t, err, webhook.ErrNotFound)
}

var errRollBack = fmt.Errorf("the host thinks better of it")

func event(tenant, payload string) webhook.Event {
	return webhook.Event{Tenant: tenant, Type: "invoice.paid", Payload: []byte(payload)}
}

func large(mark string) string {
	return fmt.Sprintf(`{"mark": %q,  "filling": %q}`, mark, strings.Repeat("x", 300_000))
}

// hooks is what the test uses of a [webhook.Hooks], whatever its transactions are.
type hooks interface {
	Endpoints() *webhook.Endpoints
	Events() *webhook.Events
	Deliveries() *webhook.Deliveries
	EraseTenant(ctx context.Context, tenant string, o webhook.EraseOptions) error
	NewDispatcher(cfg webhook.DispatcherConfig) (*webhook.Dispatcher, error)
}

// world is a host whose time the test moves, and receivers that take everything.
type world struct {
	t        *testing.T
	clock    *webhooktest.Clock
	dir      string
	payloads *payloadfs.Store
	hooks    hooks
	begin    func(f func(enqueue func(webhook.Event) uuid.UUID) error) error

	mu     sync.Mutex
	bodies map[string][]string // by host name
}

func newWorld[Tx any](t *testing.T, store webhook.Store[Tx], begin func(context.Context, func(Tx) error) error) *world {
	t.Helper()
	w := &world{t: t, clock: webhooktest.NewClock(time.Now().Truncate(time.Second)), dir: t.TempDir(), bodies: make(map[string][]string)}
	var err error
	w.payloads, err = payloadfs.Open(w.dir)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, w.payloads.Close()) })
	hooks, err := webhook.New(store, webhook.Config{
		Clock: w.clock, Secrets: webhook.NewKeyring(webhook.NewKey("test")), Transport: w, PayloadStore: w.payloads,
	})
	require.NoError(t, err)
	t.Cleanup(hooks.Close)
	w.hooks = hooks
	w.begin = func(f func(func(webhook.Event) uuid.UUID) error) error {
		return begin(t.Context(), func(tx Tx) error {
			return f(func(e webhook.Event) uuid.UUID {
				result, err := hooks.Enqueue(t.Context(), tx, e)
				require.NoError(t, err)
				return result.EventID
			})
		})
	}
	return w
}

func (w *world) RoundTrip(req *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.bodies[req.URL.Hostname()] = append(w.bodies[req.URL.Hostname()], string(body))
	return &http.Response{
		StatusCode: http.StatusOK, ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("")), Request: req,
	}, nil
}

func (w *world) got(name string) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]string(nil), w.bodies[name]...)
}

func (w *world) endpoint(tenant, name, filter string) webhook.Endpoint {
	w.t.Helper()
	e, err := w.hooks.Endpoints().Create(w.t.Context(), webhook.EndpointParams{
		Tenant: tenant, URL: "https://" + name + "/in", Types: []string{"*"}, Filter: []byte(filter),
	})
	require.NoError(w.t, err)
	return e
}

func (w *world) enqueue(tenant, payload string) (id uuid.UUID) {
	w.t.Helper()
	require.NoError(w.t, w.begin(func(enqueue func(webhook.Event) uuid.UUID) error {
		id = enqueue(event(tenant, payload))
		return nil
	}))
	return id
}

func (w *world) dispatch() (stop func()) {
	w.t.Helper()
	d, err := w.hooks.NewDispatcher(webhook.DispatcherConfig{})
	require.NoError(w.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		assert.NoError(w.t, <-ended)
	})
	w.t.Cleanup(stop)
	return stop
}

// until moves the clock by a step at a time until a condition holds.
func (w *world) until(step time.Duration, condition func(c *assert.CollectT)) {
	w.t.Helper()
	require.EventuallyWithT(w.t, func(c *assert.CollectT) {
		w.clock.Advance(step)
		condition(c)
	}, time.Minute, 20*time.Millisecond)
}

func (w *world) deliveries(c require.TestingT, endpoint, event uuid.UUID) []webhook.Delivery {
	page, err := w.hooks.Deliveries().List(w.t.Context(), webhook.DeliveryQuery{Scope: webhook.AllTenants(), EndpointID: endpoint, EventID: event})
	require.NoError(c, err)
	return page.Deliveries
}

func (w *world) file(tenant string, event uuid.UUID) string {
	return filepath.Join(w.dir, filepath.FromSlash(webhook.PayloadKey{Tenant: tenant, EventID: event}.String()))
}

func (w *world) files() (names []string) {
	for key, err := range w.payloads.List(context.Background()) {
		assert.NoError(w.t, err)
		names = append(names, w.file(key.Tenant, key.EventID))
	}
	return names
}
