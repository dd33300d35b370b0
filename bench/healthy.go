package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outhook/webhook"
	"github.com/outhook/webhook/store/postgres"
)

const (
	// town is how many endpoints there are, each of a tenant and on a host of its
	// own. One in twenty hangs, another one in twenty fails.
	town       = 2_000
	strickenIn = 20

	// answerTime is what a healthy endpoint takes.
	answerTime = 50 * time.Millisecond

	// offeredShare is the part of the measured capacity that is offered.
	offeredShare = 0.6

	hangTimeout = 30 * time.Second
)

// measureHealthy prints the p99 of the time from commit to arrival at healthy
// endpoints, with 5 % of all endpoints hanging until the timeout and 5 % failing,
// over that before; all of them from the same instant, in the middle of the run.
func measureHealthy(ctx context.Context, c *cluster, o options) error {
	return c.withDatabase(ctx, deliverConnections, func(pool *pgxpool.Pool) error {
		t, err := newTown(ctx, pool)
		if err != nil {
			return err
		}
		defer func() { _ = t.close() }()
		t.watch = sideWatch{cluster: c, pool: pool, o: o}
		return t.measure(ctx, o.healthy)
	})
}

// sideWatch tells, beside the latencies, what a side costs, and where the flags say so
// which statements and functions it costs that in.
type sideWatch struct {
	cluster *cluster
	pool    *pgxpool.Pool
	o       options
}

// during runs a side and returns the CPU time that it took per second.
func (w sideWatch) during(ctx context.Context, name string, side func() error) (used cpuTime, err error) {
	if w.o.statements {
		report, err := watchStatements(ctx, w.pool)
		if err != nil {
			return cpuTime{}, err
		}
		defer report("healthy, " + name)
	}
	if w.o.profile != "" {
		stop, err := startProfile(w.o.profile, "healthy-"+name+".cpu")
		if err != nil {
			return cpuTime{}, err
		}
		defer stop()
	}
	began, before := time.Now(), w.cluster.cpuTime()
	err = side()
	return w.cluster.cpuTime().per(before, max(1, int(time.Since(began).Seconds()))), err
}

// townHall is the receivers, and the host that sends to them.
type townHall struct {
	pool   *pgxpool.Pool
	hooks  *webhook.Hooks[pgx.Tx]
	server *http.Server
	served chan error

	stricken atomic.Bool
	hanging  atomic.Int64
	arrived  atomic.Int64

	watch sideWatch

	// Without pointers, or the collector would be busier with them on the second side
	// than on the first.
	mu     sync.Mutex
	took   []sample // first arrivals at endpoints that stay healthy
	sent   []int64  // Unix nanoseconds
	stored []sample // transactions of the host, each with the events of one tick
}

type sample struct {
	at   int64 // when the host began its transaction, in Unix nanoseconds
	took time.Duration
}

func newTown(ctx context.Context, pool *pgxpool.Pool) (*townHall, error) {
	store := postgres.New(pool)
	if err := store.Migrate(ctx); err != nil {
		return nil, err
	}
	transport, err := webhook.NewTransport(webhook.TransportConfig{
		Allow:     []webhook.AllowRule{{Prefix: netip.MustParsePrefix("127.0.0.0/8")}},
		AllowHTTP: true,
	})
	if err != nil {
		return nil, err
	}
	t := &townHall{pool: pool, served: make(chan error, 1)}
	t.hooks, err = webhook.New(store, webhook.Config{
		Logger:    slog.New(slog.DiscardHandler),
		Secrets:   webhook.NewKeyring(webhook.NewKey("bench")),
		Transport: transport,
	})
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp4", "0.0.0.0:0") // all of 127.0.0.0/8
	if err != nil {
		return nil, err
	}
	t.server = &http.Server{Handler: t, ReadHeaderTimeout: time.Minute}
	go func() { t.served <- t.server.Serve(l) }()
	port := l.Addr().(*net.TCPAddr).Port
	for i := range town {
		_, err := t.hooks.Endpoints().Create(ctx, webhook.EndpointParams{
			Tenant: townTenant(i), URL: fmt.Sprintf("http://127.1.%d.%d:%d/%d", i/250, i%250+1, port, i), Types: []string{"*"},
		})
		if err != nil {
			return nil, errors.Join(err, t.close())
		}
	}
	return t, nil
}

func (t *townHall) close() error {
	t.hooks.Close()
	err := t.server.Close()
	if served := <-t.served; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}

func townTenant(i int) string { return "t" + strconv.Itoa(i) }

// fate is what becomes of an endpoint.
func fate(i int) (hangs, fails bool) { return i%strickenIn == 0, i%strickenIn == 1 }

func (t *townHall) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	now := time.Now()
	var sent struct {
		At time.Time `json:"at"`
	}
	body, err := io.ReadAll(r.Body)
	if err != nil || json.Unmarshal(body, &sent) != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	i, _ := strconv.Atoi(strings.TrimPrefix(r.URL.Path, "/"))
	hangs, fails := fate(i)
	t.arrived.Add(1)
	if !hangs && !fails && r.Header.Get("Webhook-Attempt") == "1" {
		t.mu.Lock()
		t.took = append(t.took, sample{sent.At.UnixNano(), now.Sub(sent.At)})
		t.mu.Unlock()
	}
	wait := answerTime
	if t.stricken.Load() && hangs {
		t.hanging.Add(1)
		defer t.hanging.Add(-1)
		wait = time.Hour
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-r.Context().Done():
		return
	}
	if t.stricken.Load() && fails {
		w.WriteHeader(http.StatusInternalServerError)
	}
}

// enqueue commits events for endpoints at random.
func (t *townHall) enqueue(ctx context.Context, n int) error {
	if n == 0 {
		return nil
	}
	now := time.Now()
	events := make([]webhook.Event, n)
	var healthy []int64
	for k := range events {
		i := rand.IntN(town)
		if hangs, fails := fate(i); !hangs && !fails {
			healthy = append(healthy, now.UnixNano())
		}
		events[k] = webhook.Event{
			Tenant: townTenant(i), Type: eventType,
			Payload: fmt.Appendf(nil, `{"at":%q}`, now.Format(time.RFC3339Nano)),
		}
	}
	err := pgx.BeginFunc(ctx, t.pool, func(tx pgx.Tx) error {
		_, err := t.hooks.EnqueueMany(ctx, tx, events)
		return err
	})
	if err == nil {
		t.mu.Lock()
		t.sent = append(t.sent, healthy...)
		t.stored = append(t.stored, sample{now.UnixNano(), time.Since(now)})
		t.mu.Unlock()
	}
	return err
}

func (t *townHall) measure(ctx context.Context, period time.Duration) error {
	d, err := t.hooks.NewDispatcher(webhook.DispatcherConfig{RequestTimeout: hangTimeout, GracePeriod: time.Second})
	if err != nil {
		return err
	}
	runCtx, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- d.Run(runCtx) }()

	capacity, err := t.capacity(ctx, max(period/6, time.Second))
	if err != nil {
		return err
	}
	rate := offeredShare * capacity
	// As it will be, until it is as it will be.
	if err := t.offer(ctx, rate, period/6); err != nil {
		return err
	}
	healthy := time.Now()
	cpuBefore, err := t.watch.during(ctx, "before", func() error { return t.offer(ctx, rate, period) })
	if err != nil {
		return err
	}
	struck := time.Now()
	t.stricken.Store(true)
	cpuAfter, err := t.watch.during(ctx, "after", func() error { return t.offer(ctx, rate, period) })
	if err != nil {
		return err
	}
	over := time.Now()
	hanging := t.hanging.Load()
	if err := t.offer(ctx, rate, min(period/6, 5*time.Second)); err != nil { // for the last ones
		return err
	}
	end := time.Now()
	stop()
	if err := <-ended; err != nil {
		return err
	}

	before, lateBefore := t.between(healthy, struck, end)
	after, lateAfter := t.between(struck, over, end)
	fmt.Printf("\nhealthy endpoints among %d, each on a host of its own; %.0f events/s offered of a capacity of %.0f; %s a side\n",
		town, rate, capacity, period)
	fmt.Printf("  %-28s %8s %10s %10s %10s %10s\n", "", "events", "not sent", "p50", "p99", "max")
	show := func(name string, took []time.Duration, late int) {
		fmt.Printf("  %-28s %8d %10d %10s %10s %10s\n", name, len(took), late, ms(quantile(took, 0.5)), ms(quantile(took, 0.99)), ms(quantile(took, 1)))
	}
	show("all healthy", before, lateBefore)
	show("5 % hang, 5 % fail", after, lateAfter)
	first, _ := t.between(struck, struck.Add(10*time.Second), end)
	show("  the first 10 s of that", first, 0)
	t.showNoise(healthy, struck, over, end)
	fmt.Printf("  CPU per second, here and in PostgreSQL: %s + %s, then %s + %s\n",
		ms(cpuBefore.own), ms(cpuBefore.server), ms(cpuAfter.own), ms(cpuAfter.server))
	fmt.Printf("  requests hanging at the end: %d; load of the machine: %s\n", hanging, loadAverage())
	if quantile(before, 0.5) > 10*answerTime {
		fmt.Println("  The machine could not keep up when all were healthy, so the ratio says nothing: capacity fell after it was measured.")
	}
	fmt.Printf("ratio healthy_p99_with_5pct_at_30s %.2f  (target 1.15)\n",
		quantile(after, 0.99).Seconds()/quantile(before, 0.99).Seconds())
	return nil
}

// showNoise prints what the ratio has to be seen beside: how much the p99 differs from
// one stretch of time to the next with nothing changed, and how long the host's own
// transactions took, which wait for the same disk.
func (t *townHall) showNoise(healthy, struck, over, end time.Time) {
	p99 := func(from, to time.Time) time.Duration {
		took, _ := t.between(from, to, end)
		return quantile(took, 0.99)
	}
	side := func(name string, from, to time.Time) {
		const parts = 6
		var each, host []string
		for i := range parts {
			at := func(i int) time.Time { return from.Add(to.Sub(from) * time.Duration(i) / parts) }
			each = append(each, ms(p99(at(i), at(i+1))))
			host = append(host, ms(quantile(t.storing(at(i), at(i+1)), 1)))
		}
		fmt.Printf("  %s, p99 of each sixth: %s\n", name, strings.Join(each, ", "))
		fmt.Printf("  %s, longest transaction of the host in each: %s\n", name, strings.Join(host, ", "))
	}
	side("all healthy", healthy, struck)
	side("5 % hang, 5 % fail", struck, over)
	middle := healthy.Add(struck.Sub(healthy) / 2)
	fmt.Printf("  the ratio between the halves of the first side, with nothing changed: %.2f\n",
		p99(middle, struck).Seconds()/p99(healthy, middle).Seconds())
}

// storing returns how long the host's transactions took that began in [from, to), sorted.
func (t *townHall) storing(from, to time.Time) (took []time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range t.stored {
		if s.at >= from.UnixNano() && s.at < to.UnixNano() {
			took = append(took, s.took)
		}
	}
	slices.Sort(took)
	return took
}

// capacity measures how many events per second go through when there is always
// some work waiting.
func (t *townHall) capacity(ctx context.Context, period time.Duration) (perSecond float64, err error) {
	const ahead = 2_000
	var enqueued int64
	keepBusy := func(until time.Time) error {
		for time.Now().Before(until) {
			if enqueued-t.arrived.Load() > ahead {
				sleep(ctx, 2*time.Millisecond)
				continue
			}
			if err := t.enqueue(ctx, 250); err != nil {
				return err
			}
			enqueued += 250
		}
		return nil
	}
	if err := keepBusy(time.Now().Add(period)); err != nil { // every endpoint gets to know its receiver
		return 0, err
	}
	began, before := time.Now(), t.arrived.Load()
	if err := keepBusy(began.Add(period)); err != nil {
		return 0, err
	}
	perSecond = float64(t.arrived.Load()-before) / time.Since(began).Seconds()
	for end := time.Now().Add(time.Minute); t.arrived.Load() < enqueued && time.Now().Before(end); {
		sleep(ctx, 10*time.Millisecond)
	}
	return perSecond, ctx.Err()
}

// offer enqueues at a rate for a time, however slowly it goes through.
func (t *townHall) offer(ctx context.Context, rate float64, period time.Duration) error {
	const tick = 10 * time.Millisecond
	began := time.Now()
	done := 0
	for elapsed := time.Duration(0); elapsed < period; elapsed = time.Since(began) {
		n := int(rate*elapsed.Seconds()) - done
		if err := t.enqueue(ctx, n); err != nil {
			return err
		}
		done += n
		sleep(ctx, tick)
	}
	return ctx.Err()
}

// between returns how long the events committed in [from, to) took to arrive for
// the first time, sorted; those that have not arrived by end count with their age.
func (t *townHall) between(from, to, end time.Time) (took []time.Duration, late int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	within := func(at int64) bool { return at >= from.UnixNano() && at < to.UnixNano() }
	for _, s := range t.took {
		if within(s.at) {
			took = append(took, s.took)
		}
	}
	sent := 0
	for _, at := range t.sent {
		if within(at) {
			sent++
		}
	}
	for late = sent - len(took); len(took) < sent; {
		took = append(took, end.Sub(to))
	}
	slices.Sort(took)
	return took, late
}

func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

func ms(d time.Duration) string { return fmt.Sprintf("%.1f ms", d.Seconds()*1000) }

func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

func loadAverage() string {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	return strings.Join(strings.Fields(string(b))[:3], " ")
}
