// Command bench compares the library with its peers, both sides in one run on one
// machine and one PostgreSQL. It is a module of its own, so that the peers do not
// reach the go.sum of whoever imports the library.
//
//	go run . [-quick] [-rounds 5] [-only deliver] [-profile dir] [-statements]
//
// It starts a PostgreSQL of its own, with the settings for durability that PostgreSQL
// has by default, and prints lines of the form "ratio NAME VALUE" after the absolute
// figures. docs/performance.md says what each of them measures.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"time"
)

// options are the flags.
type options struct {
	rounds     int
	endpoints  int           // that the library's events are spread over
	events     int           // delivered per side and round
	pending    int           // deliveries that wait while memory is measured
	period     time.Duration // for which a side enqueues
	parked     int           // deliveries of one endpoint while others are claimed for
	healthy    time.Duration // for which healthy endpoints are watched per side
	logged     int           // deliveries in the log while pages are looked at
	only       string
	profile    string
	statements bool
	riverFetch time.Duration
}

// settings are what PostgreSQL needs beyond its defaults.
func (o options) settings() map[string]string {
	if !o.statements {
		return nil
	}
	return map[string]string{
		"shared_preload_libraries":          "pg_stat_statements",
		"pg_stat_statements.track_planning": "on",
	}
}

func main() {
	var o options
	quick := flag.Bool("quick", false, "one short round, to see that everything works; its figures mean nothing")
	flag.IntVar(&o.rounds, "rounds", 5, "rounds per comparison; each runs every side once")
	flag.IntVar(&o.endpoints, "endpoints", 50, "endpoints, each of a tenant of its own, that the library's events are spread over")
	flag.IntVar(&o.events, "events", 200_000, "events delivered per side and round")
	flag.IntVar(&o.pending, "pending", 100_000, "deliveries that wait while memory is measured")
	flag.DurationVar(&o.period, "period", 2*time.Second, "how long each side enqueues per round")
	flag.IntVar(&o.parked, "parked", 1_000_000, "deliveries of one endpoint while others are claimed for")
	flag.DurationVar(&o.healthy, "healthy", time.Minute, "how long healthy endpoints are watched, before and after others are struck")
	flag.IntVar(&o.logged, "logged", 1_000_000, "deliveries in the log, over a hundredth as many endpoints, while pages are looked at")
	flag.StringVar(&o.only, "only", "", "run only what contains this in its name: enqueue, deliver/library, snapshot, memory, scheduler, claim, healthy, pages")
	flag.StringVar(&o.profile, "profile", "", "write a CPU profile per side and round into this directory")
	flag.BoolVar(&o.statements, "statements", false, "print the costliest statements of each side (pg_stat_statements)")
	flag.DurationVar(&o.riverFetch, "river-fetch-cooldown", riverFetchCooldown, "River's FetchCooldown")
	flag.Parse()
	if *quick {
		o.rounds, o.events, o.pending, o.period = 1, 2_000, 5_000, 300*time.Millisecond
		o.parked, o.healthy, o.logged = 20_000, 3*time.Second, 20_000
	}

	if err := interruptible(o); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// interruptible ends on an interrupt, and the server with it.
func interruptible(o options) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	return run(ctx, o)
}

func run(ctx context.Context, o options) (err error) {
	if o.rounds < 1 || o.endpoints < 1 || o.events < 1 || o.pending < 1 || o.period <= 0 {
		return errors.New("rounds, endpoints, events, pending and period must be positive")
	}
	began := time.Now()
	c, err := startCluster(ctx, o.settings())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.stop(context.WithoutCancel(ctx))) }()
	if err := c.describe(ctx, os.Stdout); err != nil {
		return err
	}
	for _, group := range []comparison{enqueueComparison(o), deliverComparison(o), snapshotComparison(o)} {
		group.sides = slices.DeleteFunc(group.sides, func(s side) bool {
			return !strings.Contains(group.name+"/"+s.name, o.only)
		})
		if len(group.sides) == 0 {
			continue
		}
		if err := group.run(ctx, c, o); err != nil {
			return err
		}
	}
	if strings.Contains("memory", o.only) {
		if err := measureMemory(ctx, c, o); err != nil {
			return fmt.Errorf("memory: %w", err)
		}
	}
	if strings.Contains("scheduler", o.only) {
		measureScheduler(o.period)
	}
	if strings.Contains("claim", o.only) {
		if err := measureParked(ctx, c, o.parked); err != nil {
			return fmt.Errorf("claim: %w", err)
		}
	}
	if strings.Contains("healthy", o.only) {
		if err := measureHealthy(ctx, c, o); err != nil {
			return fmt.Errorf("healthy: %w", err)
		}
	}
	if strings.Contains("pages", o.only) {
		if err := measurePages(ctx, c, o); err != nil {
			return fmt.Errorf("pages: %w", err)
		}
	}
	fmt.Printf("\ntook %s\n", time.Since(began).Round(time.Second))
	return nil
}
