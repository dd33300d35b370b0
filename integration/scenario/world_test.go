package scenario_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outhook/webhook"
	"github.com/outhook/webhook/internal/offswitch"
	"github.com/outhook/webhook/internal/pgtest"
	"github.com/outhook/webhook/internal/scheduler"
	"github.com/outhook/webhook/store/postgres"
)

func TestMain(m *testing.M) {
	// The stories wait most of the time; but not so many at once that they
	// disturb one another.
	if err := flag.Set("test.parallel", "6"); err != nil {
		panic(err)
	}
	code := m.Run()
	const all = 2*scheduler.Shedding - 1 // of which there is one bit each
	whole := true
	for _, filter := range []string{"test.run", "test.skip", "test.list"} {
		whole = whole && flag.Lookup(filter).Value.String() == ""
	}
	if whole && missed != all {
		fmt.Printf("the stories do without %b, not without each mechanism of %b\n", missed, all)
		code = 1
	}
	os.Exit(code)
}

// missed are the mechanisms that some story is told without.
var missed scheduler.Mechanisms

// without is a mechanism, or some that stand in for one another.
type without struct {
	name string
	off  scheduler.Mechanisms
}

// tellings is how often a story is told at most.
const tellings = 3

// incident tells a story as shipped, where none of its checks may break, and
// without each of the given mechanisms, where some must.
//
// The stories take place in real time, and a machine that stands still for a while tells
// another one. So a check that breaks then does not count, unless it breaks each time; and
// that a mechanism is needed is shown by one telling.
func incident(t *testing.T, story func(w *world), missing ...without) {
	t.Helper()
	for _, m := range missing {
		missed |= m.off
	}
	t.Parallel()
	tell := func(t *testing.T, off scheduler.Mechanisms) (broken []string, stall time.Duration) {
		t.Helper()
		w := newWorld(t, off)
		stalled := w.watch()
		story(w)
		w.stop()
		return w.broken, stalled()
	}
	t.Run("as shipped", func(t *testing.T) {
		t.Parallel()
		broken, stall := tell(t, 0)
		for n := 1; len(broken) > 0 && stall > 100*time.Millisecond && n < tellings; n++ {
			t.Logf("told again, since the machine stood still for %v: %v", stall, broken)
			broken, stall = tell(t, 0)
		}
		assert.Empty(t, broken)
	})
	for _, m := range missing {
		t.Run("without "+m.name, func(t *testing.T) {
			t.Parallel()
			broken, _ := tell(t, m.off)
			for n := 1; len(broken) == 0 && n < tellings; n++ {
				broken, _ = tell(t, m.off)
			}
			assert.NotEmpty(t, broken, "the incident must come back")
			t.Log(broken)
		})
	}
}

// watch looks at the machine until the returned function is called, which says for how
// long it stood still at most: by how much a timer and an answer of the database that ask
// for nothing were late.
func (w *world) watch() (stalled func() time.Duration) {
	w.t.Helper()
	conn, err := pgx.ConnectConfig(w.t.Context(), w.pool.Config().ConnConfig)
	require.NoError(w.t, err)
	ctx, cancel := context.WithCancel(w.t.Context())
	longest := make(chan time.Duration, 1)
	go func() {
		const every = 10 * time.Millisecond
		var most time.Duration
		for ctx.Err() == nil {
			due := time.Now().Add(every)
			pause(ctx, every)
			if conn.Ping(ctx) != nil {
				break
			}
			most = max(most, time.Since(due))
		}
		_ = conn.Close(context.Background())
		longest <- most
	}()
	return func() time.Duration {
		cancel()
		return <-longest
	}
}

// world is a host with a database, its customers' receivers and one dispatcher.
type world struct {
	t     *testing.T
	off   scheduler.Mechanisms
	pool  *pgxpool.Pool
	hooks *webhook.Hooks[pgx.Tx]
	end   context.CancelFunc
	ended chan error

	broken []string

	mu            sync.Mutex
	inFlight, top int // requests at all receivers, now and at most
	shed          map[uuid.UUID]int
	opened        map[uuid.UUID]bool // whose circuits have opened
}

func newWorld(t *testing.T, off scheduler.Mechanisms) *world {
	t.Helper()
	w := &world{t: t, off: off, pool: pgtest.Pool(t), shed: make(map[uuid.UUID]int), opened: make(map[uuid.UUID]bool)}
	store := postgres.New(w.pool)
	require.NoError(t, store.Migrate(t.Context()))
	transport, err := webhook.NewTransport(webhook.TransportConfig{
		Allow:     []webhook.AllowRule{{Prefix: netip.MustParsePrefix("127.0.0.1/32"), Ports: []webhook.PortRange{{From: 1024, To: 65535}}}},
		AllowHTTP: true,
	})
	require.NoError(t, err)
	w.hooks, err = webhook.New(store, webhook.Config{
		Logger: slog.New(openings{w}), Secrets: webhook.NewKeyring(webhook.NewKey("test")), Transport: transport,
	})
	require.NoError(t, err)
	t.Cleanup(w.hooks.Close)
	return w
}

// dispatch starts the dispatcher.
func (w *world) dispatch(cfg webhook.DispatcherConfig) {
	w.t.Helper()
	cfg.GracePeriod = -1
	cfg.Observer = w
	cfg.PollInterval = 100 * time.Millisecond
	d, err := w.hooks.NewDispatcher(cfg)
	require.NoError(w.t, err)
	ctx, cancel := context.WithCancel(offswitch.Without(context.Background(), w.off))
	w.end, w.ended = cancel, make(chan error, 1)
	go func() { w.ended <- d.Run(ctx) }()
	w.t.Cleanup(w.stop)
}

// openings takes from the log whose circuits have opened.
type openings struct{ w *world }

func (o openings) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelWarn }
func (o openings) WithAttrs([]slog.Attr) slog.Handler               { return o }
func (o openings) WithGroup(string) slog.Handler                    { return o }
func (o openings) Handle(_ context.Context, r slog.Record) error {
	if r.Message != "webhook: circuit open" {
		return nil
	}
	r.Attrs(func(a slog.Attr) bool {
		if id, ok := a.Value.Any().(uuid.UUID); ok {
			o.w.mu.Lock()
			o.w.opened[id] = true
			o.w.mu.Unlock()
		}
		return true
	})
	return nil
}

// openedOf is how many of the receivers' circuits have opened.
func (w *world) openedOf(receivers ...*receiver) (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range receivers {
		if w.opened[r.endpoint] {
			n++
		}
	}
	return n
}

// twin is another world like this one, with nothing missing, on the same machine: what
// the machine does to one it does to both.
func (w *world) twin() *world {
	w.t.Helper()
	return newWorld(w.t, 0)
}

func (w *world) stop() {
	if w.end == nil {
		return
	}
	w.end()
	w.end = nil
	assert.NoError(w.t, <-w.ended)
}

// AttemptDone implements [webhook.Observer]: what was sent, the receivers know.
func (w *world) AttemptDone(webhook.AttemptReport) {}

// SheddingChanged implements [webhook.SheddingObserver].
func (w *world) SheddingChanged(webhook.SheddingReport) {}

// DeliveriesShed implements [webhook.SheddingObserver].
func (w *world) DeliveriesShed(r webhook.ShedReport) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.shed[r.EndpointID] += r.Count
}

// shedOf is how many deliveries to a receiver were shed, as the host was told.
func (w *world) shedOf(r *receiver) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.shed[r.endpoint]
}

// count counts deliveries in one of the tables, such as "dead".
func (w *world) count(from string) (n int) {
	w.t.Helper()
	require.NoError(w.t, w.pool.QueryRow(w.t.Context(), `SELECT count(*) FROM webhook.delivery_`+from).Scan(&n))
	return n
}

// checkf notes what went wrong.
func (w *world) checkf(ok bool, format string, args ...any) {
	if !ok {
		w.broken = append(w.broken, fmt.Sprintf(format, args...))
	}
}

// receiver is a customer's server.
type receiver struct {
	*httptest.Server

	w        *world
	endpoint uuid.UUID                        // the last one that it is subscribed by
	receive  func(n int) (time.Duration, int) // n requests are at work, this one included
	headers  http.Header                      // of each answer
	paths    map[string]*receiver             // those that are on this one's host
	at       string                           // its path

	mu       sync.Mutex
	arrivals []arrival
	now, top int
}

type arrival struct {
	enqueued, at time.Time
	first        bool
}

func (w *world) receiver(receive func(n int) (time.Duration, int)) *receiver {
	r := &receiver{w: w, receive: receive}
	r.Server = httptest.NewServer(http.HandlerFunc(r.serve))
	w.t.Cleanup(r.Close)
	return r
}

func answers(latency time.Duration) func(int) (time.Duration, int) {
	return func(int) (time.Duration, int) { return latency, http.StatusOK }
}

// path is a receiver on the same host.
func (r *receiver) path(path string, receive func(n int) (time.Duration, int)) *receiver {
	p := &receiver{Server: r.Server, w: r.w, receive: receive, at: path}
	if r.paths == nil {
		r.paths = make(map[string]*receiver)
	}
	r.paths[path] = p
	return p
}

func (r *receiver) serve(rw http.ResponseWriter, req *http.Request) {
	if p := r.paths[req.URL.Path]; p != nil {
		p.serve(rw, req)
		return
	}
	var sent struct {
		At time.Time `json:"at"`
	}
	if json.NewDecoder(req.Body).Decode(&sent) != nil {
		return
	}
	r.w.mu.Lock()
	r.w.inFlight++
	r.w.top = max(r.w.top, r.w.inFlight)
	r.w.mu.Unlock()
	r.mu.Lock()
	r.now++
	r.top = max(r.top, r.now)
	r.arrivals = append(r.arrivals, arrival{sent.At, time.Now(), req.Header.Get("Webhook-Attempt") == "1"})
	latency, status := r.receive(r.now)
	r.mu.Unlock()
	pause(req.Context(), latency)
	r.mu.Lock()
	r.now--
	r.mu.Unlock()
	r.w.mu.Lock()
	r.w.inFlight--
	r.w.mu.Unlock()
	maps.Copy(rw.Header(), r.headers)
	rw.WriteHeader(status)
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// most is how many requests there were at once at all receivers.
func (w *world) most() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.top
}

// log returns what has arrived since an instant.
func (r *receiver) log(since time.Time) []arrival {
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []arrival
	for _, a := range r.arrivals {
		if a.at.After(since) {
			list = append(list, a)
		}
	}
	return list
}

// working is how many requests the receiver has now.
func (r *receiver) working() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.now
}

func (r *receiver) most() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.top
}

// endpoint subscribes a receiver to all of a tenant's events.
func (w *world) endpoint(tenant string, r *receiver, alter ...func(*webhook.EndpointParams)) {
	w.t.Helper()
	p := webhook.EndpointParams{Tenant: tenant, URL: r.URL + r.at, Types: []string{"*"}}
	for _, f := range alter {
		f(&p)
	}
	e, err := w.hooks.Endpoints().Create(w.t.Context(), p)
	require.NoError(w.t, err)
	r.endpoint = e.ID
}

// crowd is n tenants with a receiver each that answers in 20 ms.
func (w *world) crowd(n int) (tenants []string, receivers []*receiver) {
	for i := range n {
		tenant := fmt.Sprintf("tenant-%d", i)
		r := w.receiver(answers(20 * time.Millisecond))
		w.endpoint(tenant, r)
		tenants, receivers = append(tenants, tenant), append(receivers, r)
	}
	return tenants, receivers
}

// publish commits n events for each of the tenants.
func (w *world) publish(n int, tenants ...string) {
	w.t.Helper()
	payload := fmt.Appendf(nil, `{"at":%q}`, time.Now().Format(time.RFC3339Nano))
	var events []webhook.Event
	for range n {
		for _, tenant := range tenants {
			events = append(events, webhook.Event{Tenant: tenant, Type: "invoice.paid", Payload: payload})
		}
	}
	require.NoError(w.t, pgx.BeginFunc(w.t.Context(), w.pool, func(tx pgx.Tx) error {
		_, err := w.hooks.EnqueueMany(w.t.Context(), tx, events)
		return err
	}))
}

// ages makes a tenant's deliveries older than they are, once they are all there.
func (w *world) ages(tenant string, by time.Duration) {
	w.t.Helper()
	w.eventually("the outbox is empty", func() bool {
		var n int
		err := w.pool.QueryRow(w.t.Context(), `SELECT count(*) FROM webhook.outbox`).Scan(&n)
		return err == nil && n == 0
	})
	_, err := w.pool.Exec(w.t.Context(), `
		UPDATE webhook.delivery SET next_attempt_at = next_attempt_at - $2 * interval '1 second'
		WHERE tenant = $1 AND lease_token IS NULL`, tenant, by.Seconds())
	require.NoError(w.t, err)
}

// every does something in a rhythm, for a time that the long run stretches.
func (w *world) every(d, during time.Duration, do func()) {
	for end := time.Now().Add(stretch * during); time.Now().Before(end); {
		next := time.Now().Add(d)
		do()
		pause(w.t.Context(), time.Until(next))
	}
}

// warm lets every tenant's endpoints have a success.
func (w *world) warm(receivers []*receiver, tenants ...string) {
	w.t.Helper()
	w.publish(2, tenants...)
	w.eventually("all receivers are warm", func() bool {
		for _, r := range receivers {
			if len(r.log(time.Time{})) < 2 {
				return false
			}
		}
		return true
	})
}

func (w *world) eventually(what string, condition func() bool) {
	w.t.Helper()
	require.Eventually(w.t, condition, 30*time.Second, 5*time.Millisecond, what)
}

// await waits for a condition, and no longer than it must. That it was not met is for
// the story to check.
func (w *world) await(atMost time.Duration, condition func() bool) {
	for end := time.Now().Add(atMost); time.Now().Before(end) && !condition(); {
		pause(w.t.Context(), 5*time.Millisecond)
	}
}

// checkInTime checks that what was enqueued since an instant mostly arrived within
// a second: sent events for each of the receivers.
func (w *world) checkInTime(since time.Time, sent int, receivers ...*receiver) {
	inTime := 0
	for _, r := range receivers {
		for _, a := range r.log(since) {
			if a.first && !a.enqueued.Before(since) && a.at.Sub(a.enqueued) < time.Second {
				inTime++
			}
		}
	}
	total := sent * len(receivers)
	w.checkf(inTime*100 >= 90*total, "%d of %d events of others arrived within a second", inTime, total)
}

// firsts returns, in order, how long what was enqueued since an instant took to arrive
// for the first time at the receivers. What has not arrived of the sent events for each
// counts with its age at least.
func firsts(since time.Time, sent int, receivers ...*receiver) []time.Duration {
	var took []time.Duration
	for _, r := range receivers {
		n := 0
		for _, a := range r.log(since) {
			if a.first && !a.enqueued.Before(since) {
				took = append(took, a.at.Sub(a.enqueued))
				n++
			}
		}
		took = append(took, slices.Repeat([]time.Duration{time.Hour}, max(0, sent-n))...)
	}
	slices.Sort(took)
	return took
}

func p99(sorted []time.Duration) time.Duration { return sorted[(99*len(sorted)+99)/100-1] }
