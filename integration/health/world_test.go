package health_test

import (
	"context"
	"database/sql"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
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
	"github.com/outhook/webhook/store/postgres"
	"github.com/outhook/webhook/store/sqlite"
	"github.com/outhook/webhook/webhooktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a host whose time the test moves, and receivers that answer at once what
// the test wants.
type world struct {
	t     *testing.T
	clock *webhooktest.Clock

	backend    webhook.Backend
	endpoints  *webhook.Endpoints
	deliveries *webhook.Deliveries
	health     *webhook.Health
	enqueue    func(e webhook.Event) uuid.UUID
	dispatcher func(cfg webhook.DispatcherConfig) (*webhook.Dispatcher, error)

	receivers
}

// receivers answer by host name.
type receivers struct {
	mu     sync.Mutex
	status map[string]int
	got    map[string][]string // bodies, in the order of their arrival
}

func (r *receivers) RoundTrip(req *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	name := req.URL.Hostname()
	r.got[name] = append(r.got[name], string(body))
	status := r.status[name]
	if status == 0 {
		status = http.StatusOK
	}
	return &http.Response{
		StatusCode: status, ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("")), Request: req,
	}, nil
}

func (r *receivers) answer(name string, status int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.status[name] = status
}

func (r *receivers) requests(name string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string(nil), r.got[name]...)
}

// everywhere runs a test on each of the stores. SQLite is too slow under the race
// detector for clocks that leap by minutes, so it has its turn in the long run.
func everywhere(t *testing.T, test func(w *world)) {
	t.Helper()
	if os.Getenv("WEBHOOK_LONG") != "" {
		always(t, test)
		return
	}
	t.Parallel()
	onPostgreSQL(t, test)
	inMemory(t, test)
}

// always is everywhere for what is quick on SQLite too.
func always(t *testing.T, test func(w *world)) {
	t.Helper()
	t.Parallel()
	onPostgreSQL(t, test)
	t.Run("SQLite", func(t *testing.T) {
		t.Parallel()
		onSQLite(t, test)
	})
	inMemory(t, test)
}

func onPostgreSQL(t *testing.T, test func(w *world)) {
	t.Helper()
	t.Run("PostgreSQL", func(t *testing.T) {
		t.Parallel()
		pool := pgtest.Pool(t)
		store := postgres.New(pool)
		require.NoError(t, store.Migrate(t.Context()))
		test(newWorld(t, store, func(ctx context.Context, f func(pgx.Tx) error) error { return pgx.BeginFunc(ctx, pool, f) }))
	})
}

func inMemory(t *testing.T, test func(w *world)) {
	t.Helper()
	t.Run("memory", func(t *testing.T) {
		t.Parallel()
		store := webhooktest.NewStore()
		test(newWorld(t, store, func(_ context.Context, f func(*webhooktest.Tx) error) error {
			tx := store.Begin()
			if err := f(tx); err != nil {
				_ = tx.Rollback()
				return err
			}
			return tx.Commit()
		}))
	})
}

func newWorld[Tx any](t *testing.T, store webhook.Store[Tx], begin func(context.Context, func(Tx) error) error) *world {
	t.Helper()
	w := &world{
		t: t, clock: webhooktest.NewClock(time.Now().Truncate(time.Hour)), backend: store,
		receivers: receivers{status: map[string]int{}, got: map[string][]string{}},
	}
	hooks, err := webhook.New(store, webhook.Config{
		Clock: w.clock, Secrets: webhook.NewKeyring(webhook.NewKey("test")), Transport: &w.receivers,
	})
	require.NoError(t, err)
	t.Cleanup(hooks.Close)
	w.endpoints, w.deliveries, w.health, w.dispatcher = hooks.Endpoints(), hooks.Deliveries(), hooks.Health(), hooks.NewDispatcher
	w.enqueue = func(e webhook.Event) (id uuid.UUID) {
		t.Helper()
		require.NoError(t, begin(t.Context(), func(tx Tx) error {
			result, err := hooks.Enqueue(t.Context(), tx, e)
			id = result.EventID
			return err
		}))
		return id
	}
	return w
}

// endpoint makes one that gets all events of a tenant.
func (w *world) endpoint(tenant, name string) webhook.Endpoint {
	w.t.Helper()
	e, err := w.endpoints.Create(w.t.Context(), webhook.EndpointParams{Tenant: tenant, URL: "https://" + name + "/in", Types: []string{"*"}})
	require.NoError(w.t, err)
	return e
}

func event(tenant string) webhook.Event {
	return webhook.Event{Tenant: tenant, Type: "invoice.paid", Payload: []byte(`{}`)}
}

func (w *world) enqueueMany(n int, tenant string) []uuid.UUID {
	ids := make([]uuid.UUID, n)
	for i := range ids {
		ids[i] = w.enqueue(event(tenant))
	}
	return ids
}

// dispatch runs a dispatcher until the returned function, or the test, ends it.
func (w *world) dispatch(cfg webhook.DispatcherConfig) (d *webhook.Dispatcher, stop func()) {
	w.t.Helper()
	d, err := w.dispatcher(cfg)
	require.NoError(w.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		assert.NoError(w.t, <-ended)
	})
	w.t.Cleanup(stop)
	return d, stop
}

// onSQLite runs a test on a file.
func onSQLite(t *testing.T, test func(w *world)) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "app.db")+"?_pragma=busy_timeout(30000)&_txlock=immediate&_pragma=journal_mode(wal)&_pragma=synchronous(off)")
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, db.Close()) })
	store := sqlite.New(db)
	require.NoError(t, store.Migrate(t.Context()))
	test(newWorld(t, store, func(ctx context.Context, f func(*sql.Tx) error) error {
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

// reasonable is how long a test waits for what must happen.
const reasonable = 60 * time.Second

// until moves the clock by a step at a time until a condition holds, and never while the
// store stands still: leases would end with nobody able to renew them.
func (w *world) until(step time.Duration, condition func(c *assert.CollectT)) {
	w.t.Helper()
	require.EventuallyWithT(w.t, func(c *assert.CollectT) {
		w.clock.Advance(step)
		_, err := w.backend.Now(w.t.Context())
		require.NoError(c, err)
		condition(c)
	}, reasonable, 5*time.Millisecond)
}

func (w *world) read(c require.TestingT, id uuid.UUID) webhook.EndpointHealth {
	h, err := w.health.Endpoint(w.t.Context(), webhook.AllTenants(), id)
	require.NoError(c, err)
	return h
}

func (w *world) get(c require.TestingT, id uuid.UUID) webhook.Endpoint {
	e, err := w.endpoints.Get(w.t.Context(), webhook.AllTenants(), id)
	require.NoError(c, err)
	return e
}

func (w *world) inState(c require.TestingT, endpoint uuid.UUID, state webhook.DeliveryState) []webhook.Delivery {
	page, err := w.deliveries.List(w.t.Context(), webhook.DeliveryQuery{Scope: webhook.AllTenants(), EndpointID: endpoint, State: state})
	require.NoError(c, err)
	return page.Deliveries
}

// notices returns the kinds of an endpoint's notices, the oldest first.
func (w *world) notices(c require.TestingT, endpoint uuid.UUID) []webhook.NoticeKind {
	list, err := w.health.Notices(w.t.Context(), webhook.ListNoticesParams{Scope: webhook.AllTenants(), EndpointID: endpoint})
	require.NoError(c, err)
	kinds := []webhook.NoticeKind{}
	for _, n := range slices.Backward(list) {
		kinds = append(kinds, n.Kind)
	}
	return kinds
}

// listener takes notices.
type listener struct {
	mu    sync.Mutex
	heard []webhook.Notice
	fails atomic.Int64 // how many more calls fail
}

func (l *listener) Notify(_ context.Context, n webhook.Notice) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.heard = append(l.heard, n)
	switch l.fails.Add(-1) {
	case 0, 2, 4:
		return assert.AnError
	case 1, 3, 5:
		panic("callback")
	}
	return nil
}

func (l *listener) all() []webhook.Notice {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]webhook.Notice(nil), l.heard...)
}

func noBreaker() webhook.BreakerConfig {
	return webhook.BreakerConfig{ConsecutiveFailures: -1, FailureRatio: -1, MaxLatency: -1}
}
