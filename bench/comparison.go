package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime/pprof"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// comparison runs its sides in turn, round after round, and relates them to one
// another.
type comparison struct {
	name   string
	unit   string
	sides  []side
	ratios []ratio
}

// side is one of the things compared.
type side struct {
	name string
	// connections is the size of the pool; 0 means that no database is needed.
	connections int32
	// prepare fills a new database and returns the function to be timed, which
	// returns how many units it did.
	prepare func(context.Context, *pgxpool.Pool) (func(context.Context) (units int, took time.Duration, err error), error)
}

// ratio is the figure of one side over that of another.
type ratio struct {
	name, over, under string
	target            float64 // 0: none
}

// run prints the figures. A ratio is the median of the rounds' ratios: two sides of one
// round ran within seconds of one another, so that a machine that is slower for a while
// does not change it.
func (c comparison) run(ctx context.Context, on *cluster, o options) error {
	figures := make(map[string][]float64)
	for round := range o.rounds {
		// The order rotates and turns, so that no side always has the same neighbour
		// before it.
		order := slices.Clone(c.sides)
		if round%2 == 1 {
			slices.Reverse(order)
		}
		first := round / 2 % len(order)
		order = append(order[first:], order[:first]...)
		for _, s := range order {
			perSecond, err := c.measure(ctx, on, s, round, o)
			if err != nil {
				return fmt.Errorf("%s, %s, round %d: %w", c.name, s.name, round+1, err)
			}
			figures[s.name] = append(figures[s.name], perSecond)
		}
	}

	fmt.Printf("\n%s, %s per second: median (lowest to highest) of %d rounds\n", c.name, c.unit, o.rounds)
	for _, s := range c.sides {
		f := figures[s.name]
		fmt.Printf("  %-24s %8.0f  (%.0f to %.0f)\n", s.name, median(f), slices.Min(f), slices.Max(f))
	}
	for _, r := range c.ratios {
		each := make([]float64, o.rounds)
		for i := range each {
			each[i] = figures[r.over][i] / figures[r.under][i]
		}
		note := ""
		if r.target > 0 {
			note = fmt.Sprintf("  (target %.2f)", r.target)
		}
		fmt.Printf("ratio %s %.2f%s\n", r.name, median(each), note)
	}
	return nil
}

func (c comparison) measure(ctx context.Context, on *cluster, s side, round int, o options) (perSecond float64, err error) {
	timed := func(pool *pgxpool.Pool) error {
		do, err := s.prepare(ctx, pool)
		if err != nil {
			return err
		}
		if err := on.settle(ctx); err != nil {
			return err
		}
		if o.statements && pool != nil {
			report, err := watchStatements(ctx, pool)
			if err != nil {
				return err
			}
			defer report(c.name + ", " + s.name)
		}
		if o.profile != "" {
			stop, err := startProfile(o.profile, fmt.Sprintf("%s-%s-%d.cpu", c.name, s.name, round+1))
			if err != nil {
				return err
			}
			defer stop()
		}
		units, took, err := do(ctx)
		if err != nil {
			return err
		}
		perSecond = float64(units) / took.Seconds()
		return nil
	}
	if s.connections == 0 {
		return perSecond, timed(nil)
	}
	err = on.withDatabase(ctx, s.connections, timed)
	return perSecond, err
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

func startProfile(dir, name string) (stop func(), err error) {
	f, err := os.Create(filepath.Join(dir, name))
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		f.Close()
		return nil, err
	}
	return func() {
		pprof.StopCPUProfile()
		f.Close()
	}, nil
}

// watchStatements counts what the server does from now on, and returns a function that
// prints the costliest statements.
func watchStatements(ctx context.Context, pool *pgxpool.Pool) (report func(title string), err error) {
	if _, err := pool.Exec(ctx, `CREATE EXTENSION IF NOT EXISTS pg_stat_statements`); err != nil {
		return nil, fmt.Errorf("counting statements: %w", err)
	}
	if _, err := pool.Exec(ctx, `SELECT pg_stat_statements_reset()`); err != nil {
		return nil, fmt.Errorf("counting statements: %w", err)
	}
	return func(title string) {
		rows, err := pool.Query(ctx, `
			SELECT calls, rows, total_exec_time, mean_exec_time, wal_bytes::bigint, left(regexp_replace(query, '\s+', ' ', 'g'), 110)
			FROM pg_stat_statements WHERE dbid = (SELECT oid FROM pg_database WHERE datname = current_database())
			ORDER BY total_exec_time DESC LIMIT 10`)
		if err != nil {
			fmt.Println("statements:", err)
			return
		}
		defer rows.Close()
		fmt.Printf("\n%s\n  %8s %9s %10s %9s %9s\n", title, "calls", "rows", "total ms", "mean ms", "WAL MB")
		for rows.Next() {
			var calls, n, wal int64
			var total, mean float64
			var query string
			if err := rows.Scan(&calls, &n, &total, &mean, &wal, &query); err != nil {
				fmt.Println("statements:", err)
				return
			}
			fmt.Printf("  %8d %9d %10.0f %9.2f %9.1f  %s\n", calls, n, total, mean, float64(wal)/(1<<20), query)
		}
	}, nil
}
