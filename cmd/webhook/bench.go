package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/outhook/webhook"
)

// benchmark measures what a database and this machine can do.
type benchmark struct {
	events    int
	endpoints int
	payload   int
	writers   int
	live      time.Duration
	rate      int
}

type benchResult struct {
	Database string `json:"database"`
	Events   int    `json:"events"`
	// EnqueuedPerSecond counts events that were each committed in a transaction of
	// their own, by Writers at a time.
	EnqueuedPerSecond float64 `json:"enqueued_per_second"`
	Writers           int     `json:"writers"`
	// DeliveredPerSecond is how fast the backlog of them went out to a receiver on
	// this machine.
	DeliveredPerSecond float64 `json:"delivered_per_second"`
	// LiveP50MS and LiveP99MS are from commit to the end of the attempt, at
	// LivePerSecond.
	LivePerSecond int     `json:"live_per_second"`
	LiveP50MS     float64 `json:"live_p50_ms"`
	LiveP99MS     float64 `json:"live_p99_ms"`
}

func (a *app) benchCommand() *cobra.Command {
	b := &benchmark{}
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure enqueuing and delivering on this database and machine",
		Long: `Measures how fast events are committed and delivered, to a receiver on this machine. It
works in a schema (PostgreSQL) or file beside the database (SQLite) of its own, which it
removes afterwards, and puts load on the server: not for a busy one.`,
		Args: args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if b.events < 1 || b.events > 1_000_000 || b.endpoints < 1 || b.endpoints > 1000 || b.writers < 1 || b.rate < 1 ||
				b.payload < 2 || b.payload > webhook.DefaultMaxPayload || b.live < 0 {
				return usagef("want 1 to 1,000,000 events, 1 to 1,000 endpoints, at least one writer and event per second, and a payload of 2 to %d bytes", webhook.DefaultMaxPayload)
			}
			result, err := a.bench(cmd.Context(), b)
			if err != nil {
				return err
			}
			return a.printBench(result)
		},
	}
	f := cmd.Flags()
	f.IntVar(&b.events, "events", 5000, "how many events to enqueue, and then to deliver")
	f.IntVar(&b.endpoints, "endpoints", 20, "over how many endpoints")
	f.IntVar(&b.payload, "payload", 512, "the size of each payload in bytes")
	f.IntVar(&b.writers, "writers", 4, "how many transactions at a time")
	f.DurationVar(&b.live, "live", 3*time.Second, "how long to measure latencies")
	f.IntVar(&b.rate, "rate", 50, "how many events a second meanwhile")
	return cmd
}

func (a *app) printBench(r benchResult) error {
	if a.json {
		return a.printJSON(r)
	}
	return a.printTable("WHAT|FIGURE", func(row func(...any)) {
		row("database", r.Database)
		row("events", r.Events)
		row(fmt.Sprintf("enqueued per second, %d writers", r.Writers), fmt.Sprintf("%.0f", r.EnqueuedPerSecond))
		row("delivered per second", fmt.Sprintf("%.0f", r.DeliveredPerSecond))
		if r.LiveP99MS > 0 {
			row(fmt.Sprintf("commit to answer at %d/s, p50", r.LivePerSecond), fmt.Sprintf("%.1f ms", r.LiveP50MS))
			row(fmt.Sprintf("commit to answer at %d/s, p99", r.LivePerSecond), fmt.Sprintf("%.1f ms", r.LiveP99MS))
		}
	})
}

// arena is a place of the benchmark's own in the database.
func (a *app) arena(ctx context.Context) (*database, func(), error) {
	name, err := a.databaseName()
	if err != nil {
		return nil, nil, err
	}
	var suffix [4]byte
	_, _ = rand.Read(suffix[:]) // never fails
	own := "webhook_bench_" + hex.EncodeToString(suffix[:])
	transport, err := webhook.NewTransport(webhook.TransportConfig{
		Allow:     []webhook.AllowRule{{Prefix: netip.MustParsePrefix("127.0.0.1/32"), Ports: []webhook.PortRange{{From: 1024, To: 65535}}}},
		AllowHTTP: true,
	})
	if err != nil {
		return nil, nil, err
	}
	o := openOptions{create: true, prepare: true, schema: own, config: webhook.Config{
		Secrets: webhook.NewKeyring(webhook.NewKey("bench")), Transport: transport, SingleTenant: true,
	}}
	file := ""
	if !isPostgres(name) {
		file = filepath.Join(filepath.Dir(strings.TrimPrefix(name, "sqlite:")), own+".db")
		o.name = file
	}
	db, err := a.open(ctx, o)
	if err != nil {
		return nil, nil, err
	}
	remove := func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		if db.pg != nil {
			if _, err := db.pg.Exec(ctx, "DROP SCHEMA IF EXISTS "+pgx.Identifier{own}.Sanitize()+" CASCADE"); err != nil {
				fmt.Fprintf(a.err, "The schema %s is left behind: %v\n", own, err)
			}
		}
		db.close()
		if file != "" {
			for _, end := range []string{"", "-wal", "-shm"} {
				os.Remove(file + end)
			}
		}
	}
	if err := db.store.Migrate(ctx); err != nil {
		remove()
		return nil, nil, err
	}
	return db, remove, nil
}

func (a *app) bench(ctx context.Context, b *benchmark) (r benchResult, err error) {
	db, remove, err := a.arena(ctx)
	if err != nil {
		return r, err
	}
	defer remove()
	receiver, err := startBenchReceiver(ctx)
	if err != nil {
		return r, err
	}
	defer receiver.Close()
	for i := range b.endpoints {
		if _, err := db.hooks.Endpoints().Create(ctx, webhook.EndpointParams{
			URL: fmt.Sprintf("http://%s/%d", receiver.Addr, i), Types: []string{fmt.Sprintf("bench.e%d", i)},
		}); err != nil {
			return r, err
		}
	}
	r = benchResult{Database: db.kind(), Events: b.events, Writers: b.writers, LivePerSecond: b.rate}
	fmt.Fprintf(a.err, "Enqueuing %d events …\n", b.events)
	began := time.Now()
	if err := b.enqueue(ctx, db); err != nil {
		return r, err
	}
	r.EnqueuedPerSecond = float64(b.events) / time.Since(began).Seconds()

	seen := newAttempts()
	dispatcher, err := db.hooks.NewDispatcher(webhook.DispatcherConfig{Observer: seen, MaxInFlightPerHost: 200})
	if err != nil {
		return r, err
	}
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- dispatcher.Run(running) }()
	defer func() {
		stop()
		err = errors.Join(err, <-ended)
	}()
	fmt.Fprintf(a.err, "Delivering them …\n")
	began = time.Now()
	if err := seen.wait(ctx, b.events); err != nil {
		return r, err
	}
	r.DeliveredPerSecond = float64(b.events) / time.Since(began).Seconds()
	if b.live > 0 {
		fmt.Fprintf(a.err, "Delivering %d a second for %s …\n", b.rate, b.live)
		r.LiveP50MS, r.LiveP99MS, err = b.measureLive(ctx, db, seen)
	}
	return r, err
}

func (b *benchmark) event(i int) webhook.Event {
	body := `"` + strings.Repeat("x", b.payload-2) + `"`
	return webhook.Event{Type: fmt.Sprintf("bench.e%d", i%b.endpoints), Payload: []byte(body)}
}

// enqueue commits events one by one.
func (b *benchmark) enqueue(ctx context.Context, db *database) error {
	next := make(chan int)
	errs := make([]error, b.writers)
	var writers sync.WaitGroup
	for w := range b.writers {
		writers.Go(func() {
			for i := range next {
				if errs[w] == nil {
					_, errs[w] = db.enqueue(ctx, b.event(i))
				}
			}
		})
	}
	for i := range b.events {
		next <- i
	}
	close(next)
	writers.Wait()
	return errors.Join(errs...)
}

// measureLive commits events at a rate and returns percentiles of how long each took
// from its commit to its answer.
func (b *benchmark) measureLive(ctx context.Context, db *database, seen *attempts) (p50, p99 float64, err error) {
	interval := time.Second / time.Duration(b.rate)
	n := max(int(b.live/interval), 1)
	committed := make(map[uuid.UUID]time.Time, n)
	tick := time.NewTicker(interval)
	defer tick.Stop()
	before := seen.count()
	for i := range n {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return 0, 0, ctx.Err()
		}
		id, err := db.enqueue(ctx, b.event(i))
		if err != nil {
			return 0, 0, err
		}
		committed[id] = time.Now()
	}
	if err := seen.wait(ctx, before+n); err != nil {
		return 0, 0, err
	}
	took := seen.latencies(committed)
	if len(took) == 0 {
		return 0, 0, errors.New("nothing was delivered")
	}
	slices.Sort(took)
	at := func(q float64) float64 {
		return float64(took[int(q*float64(len(took)-1))]) / float64(time.Millisecond)
	}
	return at(0.50), at(0.99), nil
}

// attempts follows deliveries as they happen.
type attempts struct {
	mu        sync.Mutex
	delivered map[uuid.UUID]time.Time // by event
	more      chan struct{}           // cap 1
}

func newAttempts() *attempts {
	return &attempts{delivered: make(map[uuid.UUID]time.Time), more: make(chan struct{}, 1)}
}

// AttemptDone implements [webhook.Observer].
func (s *attempts) AttemptDone(r webhook.AttemptReport) {
	if r.State != webhook.StateDelivered {
		return
	}
	s.mu.Lock()
	s.delivered[r.EventID] = time.Now()
	s.mu.Unlock()
	select {
	case s.more <- struct{}{}:
	default:
	}
}

func (s *attempts) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.delivered)
}

// wait returns when n events were delivered.
func (s *attempts) wait(ctx context.Context, n int) error {
	for s.count() < n {
		select {
		case <-s.more:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func (s *attempts) latencies(committed map[uuid.UUID]time.Time) []time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	took := make([]time.Duration, 0, len(committed))
	for id, at := range committed {
		if end, ok := s.delivered[id]; ok {
			took = append(took, max(end.Sub(at), 0))
		}
	}
	return took
}

// startBenchReceiver answers everything with 204.
func startBenchReceiver(ctx context.Context) (*http.Server, error) {
	lis, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	server := &http.Server{
		Addr: lis.Addr().String(), ReadHeaderTimeout: 10 * time.Second,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			w.WriteHeader(http.StatusNoContent)
		}),
	}
	go func() { _ = server.Serve(lis) }()
	return server, nil
}
