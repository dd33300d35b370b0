package crash_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outhook/webhook"
	"github.com/outhook/webhook/internal/pgtest"
	"github.com/outhook/webhook/webhooktest"
)

const (
	soakCap     = 5  // requests at once per endpoint
	soakTargets = 24 // so many that each process has some
)

// soakFor is how long faults are injected: `make soak` asks for ten minutes.
func soakFor(t *testing.T) time.Duration {
	t.Helper()
	long := os.Getenv("WEBHOOK_SOAK")
	if long == "" {
		return time.Minute
	}
	d, err := time.ParseDuration(long)
	require.NoError(t, err, "WEBHOOK_SOAK")
	return d
}

// soakConfig is quick with circuits that open and close within the test, and with
// time enough to deliver everything to whoever comes back.
func soakConfig() webhook.DispatcherConfig {
	cfg := quick()
	cfg.Breaker = webhook.BreakerConfig{OpenFor: 500 * time.Millisecond, MaxOpenFor: 2 * time.Second, SlowStartEvery: time.Second}
	cfg.Retry = webhook.RetrySchedule{Delays: slices.Repeat([]time.Duration{time.Second}, 40)}
	return cfg
}

// soak is three processes on one PostgreSQL that take orders and deliver, while
// everything that can go wrong does: processes die and stand still, the database
// crashes, clocks are wrong, receivers fail in every way, endpoints come, go, pause
// and change their secrets. Afterwards three ledgers are compared: the host's, kept in
// its own transactions, the receivers', and the library's.
type soak struct {
	w         *world
	server    *pgtest.Server
	random    *rand.Rand
	targets   []*target
	gone      []*target // of endpoints that were deleted
	processes []*process
	happened  map[string]int
}

// fault is something that goes wrong, and that a soak must have seen.
type fault struct {
	name   string
	weight int // how often, beside the others
	inject func(*soak)
}

var faults = []fault{
	{"kill", 6, (*soak).kill},
	{"stop past the lease", 1, (*soak).standStill},
	{"database crash", 1, (*soak).crashDatabase},
	{"clock wrong", 2, (*soak).wrongClock},
	{"receiver fails", 8, (*soak).receiverFails},
	{"endpoint paused", 3, (*soak).pauseEndpoint},
	{"secret rotated", 3, (*soak).rotate},
	{"endpoint replaced", 2, (*soak).replaceEndpoint},
}

func TestSoak(t *testing.T) {
	t.Parallel()
	period := soakFor(t)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	server := pgtest.Start(t, pgtest.Options{Durable: true})
	s := &soak{
		w: newWorldAt(t, onPostgres, pgtest.On(t, server), 0), server: server,
		random: rand.New(rand.NewPCG(seed, 0)), happened: map[string]int{},
	}
	for i := range soakTargets {
		tenant := fmt.Sprint("tenant", i)
		s.w.tenants = append(s.w.tenants, tenant)
		s.targets = append(s.targets, s.newTarget(tenant, i%2 == 0))
	}
	for range 3 {
		s.processes = append(s.processes, s.start(0))
	}
	began := time.Now()
	for _, f := range faults { // each at least once
		f.inject(s)
		s.happened[f.name]++
	}
	for time.Since(began) < period {
		f := s.choose()
		f.inject(s)
		s.happened[f.name]++
		pause(t.Context(), time.Duration(s.random.IntN(1000))*time.Millisecond)
	}
	s.w.settle(len(s.processes))
	for _, p := range s.processes {
		p.stop()
	}

	// No more orders and no more faults: three new processes bring it to its end.
	for i := range s.processes {
		s.processes[i] = s.w.start(orders{Dispatch: true, Soak: true})
	}
	s.capsHold()
	s.untilFinished()
	s.compare(period)
	for _, p := range s.processes {
		goroutines, heap := p.footprint()
		assert.Less(t, goroutines, 400, "goroutines with nothing to do")
		assert.Less(t, heap, 64<<20, "bytes in use with nothing to do")
		p.stop()
	}
}

func (s *soak) choose() fault {
	total := 0
	for _, f := range faults {
		total += f.weight
	}
	n := s.random.IntN(total)
	for _, f := range faults {
		if n -= f.weight; n < 0 {
			return f
		}
	}
	panic("unreachable")
}

func (s *soak) start(clock time.Duration) *process {
	return s.w.start(orders{Dispatch: true, Soak: true, Tenants: s.w.tenants, ClockOffset: clock})
}

func (s *soak) anyProcess() int    { return s.random.IntN(len(s.processes)) }
func (s *soak) anyTarget() *target { return s.targets[s.random.IntN(len(s.targets))] }

func (s *soak) kill() {
	i := s.anyProcess()
	s.processes[i].kill()
	s.processes[i] = s.start(0)
}

func (s *soak) wrongClock() {
	i := s.anyProcess()
	s.processes[i].kill()
	offset := 10 * time.Minute
	if s.random.IntN(2) == 0 {
		offset = -offset
	}
	s.processes[i] = s.start(offset)
}

func (s *soak) standStill() {
	p := s.processes[s.anyProcess()]
	p.freeze()
	pause(s.w.t.Context(), soakConfig().Lease+time.Second)
	p.thaw()
}

func (s *soak) crashDatabase() {
	require.NoError(s.w.t, s.server.Crash())
	pause(s.w.t.Context(), time.Duration(s.random.IntN(1000))*time.Millisecond)
	require.NoError(s.w.t, s.server.Restart())
}

func (s *soak) receiverFails() {
	ok := webhooktest.Status(200)
	ways := []webhooktest.Behavior{
		webhooktest.Status(500), webhooktest.Status(404), webhooktest.Reset(), webhooktest.Hang(),
		webhooktest.Delay(300*time.Millisecond, ok), webhooktest.TooManyRequests(time.Second),
		webhooktest.Redirect(302, "http://127.0.0.1:1/"), webhooktest.Flapping(ok, 5, webhooktest.Status(503), 5),
		webhooktest.Capacity(2, webhooktest.Delay(20*time.Millisecond, ok), webhooktest.Status(503)),
		webhooktest.Raw([]byte("HTTP/1.1 banana\r\n\r\n")), webhooktest.DripHeader(100 * time.Millisecond),
	}
	s.anyTarget().misbehave(ways[s.random.IntN(len(ways))], time.Duration(1+s.random.IntN(3))*time.Second)
}

func (s *soak) pauseEndpoint() {
	id := s.anyTarget().id
	s.change(func(ctx context.Context) error {
		_, err := s.w.host.endpoints.Pause(ctx, webhook.AllTenants(), id, "maintenance")
		return err
	})
	pause(s.w.t.Context(), time.Duration(s.random.IntN(1500))*time.Millisecond)
	s.change(func(ctx context.Context) error {
		_, err := s.w.host.endpoints.Resume(ctx, webhook.AllTenants(), id)
		return err
	})
}

func (s *soak) rotate() {
	t := s.anyTarget()
	s.change(func(ctx context.Context) error {
		e, err := s.w.host.endpoints.RotateSecret(ctx, webhook.AllTenants(), t.id, webhook.RotateOptions{})
		if err == nil {
			t.accept(e.Secret) // the old one signs as well for a day
		}
		return err
	})
}

// replaceEndpoint deletes an endpoint with what is pending, and makes another for the
// same tenant.
func (s *soak) replaceEndpoint() {
	i := s.random.IntN(len(s.targets))
	old := s.targets[i]
	s.change(func(ctx context.Context) error { return s.w.host.endpoints.Delete(ctx, webhook.AllTenants(), old.id) })
	s.gone = append(s.gone, old)
	s.targets[i] = s.newTarget(s.w.tenants[i], old.ordered)
}

// change makes a change, more than once where the database has just crashed.
func (s *soak) change(fn func(context.Context) error) {
	s.w.t.Helper()
	require.EventuallyWithT(s.w.t, func(c *assert.CollectT) { require.NoError(c, fn(s.w.t.Context())) }, patience, 50*time.Millisecond)
}

// capsHold looks at the receivers once the members have settled.
func (s *soak) capsHold() {
	crowds := make([]*crowd, len(s.targets))
	for i, t := range s.targets {
		crowds[i] = &t.crowd
	}
	s.w.atRest(len(s.processes), func() { s.w.load(60) }, crowds)
	for i, t := range s.targets {
		most, senders := t.crowd.take()
		assert.LessOrEqual(s.w.t, most, soakCap, "requests at once at %s", s.w.tenants[i])
		assert.LessOrEqual(s.w.t, len(senders), 1, "processes that send to %s", s.w.tenants[i])
	}
}

// untilFinished waits until nothing is left to fan out or to send.
func (s *soak) untilFinished() {
	pool := pgtest.Open(s.w.t, s.w.url)
	left := -1
	require.Eventually(s.w.t, func() bool {
		err := pool.QueryRow(s.w.t.Context(), `SELECT (SELECT count(*) FROM webhook.outbox) + (SELECT count(*) FROM webhook.delivery)`).Scan(&left)
		return err == nil && left == 0
	}, 3*patience, 50*time.Millisecond, "events and deliveries that are stuck")
}

// outcome is what the library says of one order at one endpoint.
type outcome struct {
	Order    uuid.UUID
	Endpoint *uuid.UUID
	State    *string
	Reason   *string
}

const outcomes = `
SELECT e.idempotency_key::uuid, d.endpoint_id, d.state, d.reason
FROM webhook.event e LEFT JOIN (
	SELECT event_id, endpoint_id, 'delivered' AS state, '' AS reason FROM webhook.delivery_log
	UNION ALL SELECT event_id, endpoint_id, state, reason FROM webhook.delivery_dead
) d ON d.event_id = e.id`

// compare is the three-way difference.
func (s *soak) compare(period time.Duration) {
	t := s.w.t
	committed, err := s.w.host.orders(t.Context())
	require.NoError(t, err)
	rows, err := pgtest.Open(t, s.w.url).Query(t.Context(), outcomes)
	require.NoError(t, err)
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[outcome])
	require.NoError(t, err)

	receivers := map[uuid.UUID]*target{}
	sent, twice, unsigned, overtaken := 0, 0, 0, 0
	rolledBack := map[uuid.UUID]bool{}
	for _, r := range slices.Concat(s.targets, s.gone) {
		receivers[r.id] = r
		unsigned += r.unsigned
		if r.ordered {
			overtaken += r.overtaken
		}
		for order := range r.arrived {
			if !committed[order] {
				rolledBack[order] = true
			}
		}
		for _, n := range r.accepted {
			sent += n
			if n > 1 {
				twice++
			}
		}
	}
	assert.Empty(t, rolledBack, "orders that were rolled back, and sent")
	assert.Zero(t, unsigned, "requests with a wrong signature")
	assert.Zero(t, overtaken, "events of a resource that were overtaken where order was asked for")

	known, states := map[uuid.UUID]bool{}, map[string]int{}
	invented, homeless, unexplained, untrue := 0, 0, 0, 0
	for _, o := range all {
		known[o.Order] = true
		if !committed[o.Order] {
			invented++
		}
		switch {
		case o.State == nil:
			homeless++ // committed between the end of one endpoint and the beginning of the next
			states["without an endpoint"]++
			continue
		case *o.State == "delivered":
			if receivers[*o.Endpoint].accepted[o.Order] == 0 {
				untrue++
			}
		case *o.Reason == "":
			unexplained++
		}
		states[strings.TrimSpace(*o.State+" "+*o.Reason)]++
	}
	lost := 0
	for order := range committed {
		if !known[order] {
			lost++
		}
	}
	assert.Zero(t, lost, "committed orders that the library does not know")
	assert.Zero(t, invented, "events of orders that were rolled back")
	assert.Zero(t, untrue, "delivered without a receipt")
	assert.Zero(t, unexplained, "dead or cancelled without a reason")
	assert.Less(t, homeless, len(committed)/10)
	assert.Greater(t, states["delivered"], len(committed)/2)
	for _, f := range faults {
		assert.Positive(t, s.happened[f.name], f.name)
	}
	assert.Positive(t, s.w.takeoversSoFar(), "no lease was taken over")
	if period >= 10*time.Minute {
		assert.GreaterOrEqual(t, len(committed), 100_000)
		assert.GreaterOrEqual(t, s.happened["kill"], 30)
		assert.GreaterOrEqual(t, s.happened["database crash"], 3)
	}
	s.summarise(map[string]int{
		"orders committed": len(committed), "requests answered with 2xx": sent,
		"orders received twice at an endpoint": twice, "leases taken over": s.w.takeoversSoFar(),
	}, states)
}

// summarise prints what happened as a table.
func (s *soak) summarise(counts, states map[string]int) {
	var out strings.Builder
	table := tabwriter.NewWriter(&out, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, part := range []map[string]int{s.happened, counts, states} {
		for _, what := range slices.Sorted(maps.Keys(part)) {
			fmt.Fprintf(table, "%d\t %s\n", part[what], what)
		}
		fmt.Fprintln(table, "\t")
	}
	_ = table.Flush()
	s.w.t.Logf("what happened:\n%s", out.String())
}
