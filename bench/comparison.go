package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime/pprof"
	"slices"

	"github.com/jackc/pgx/v5/pgxpool"
)

// comparison runs its sides in turn, round after round, and relates them to one
// another.
type comparison struct {
	name   string
	unit   string
	sides  []side
	ratios []ratio
	// maxRounds, unless 0, is how many rounds are enough of what takes long.
	maxRounds int
}

// side is one of the things compared.
type side struct {
	name string
	// connections is the size of the pool; 0 means that no database is needed.
	connections int32
	// prepare fills a new database and returns the function to be timed, which
	// returns how many units it did.
	prepare prepareFunc
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
	cpu := make(map[string][]cpuTime)
	rounds := o.rounds
	if c.maxRounds > 0 {
		rounds = min(rounds, c.maxRounds)
	}
	for round := range rounds {
		// The order rotates and turns, so that no side always has the same neighbour
		// before it.
		order := slices.Clone(c.sides)
		if round%2 == 1 {
			slices.Reverse(order)
		}
		first := round / 2 % len(order)
		order = append(order[first:], order[:first]...)
		for _, s := range order {
			f, err := c.measure(ctx, on, s, round, o)
			if err != nil {
				return fmt.Errorf("%s, %s, round %d: %w", c.name, s.name, round+1, err)
			}
			figures[s.name] = append(figures[s.name], f.perSecond)
			cpu[s.name] = append(cpu[s.name], f.cpu)
		}
	}

	fmt.Printf("\n%s, %s per second: median (lowest to highest) of %d rounds; CPU time of each, here and in PostgreSQL\n", c.name, c.unit, rounds)
	for _, s := range c.sides {
		f := figures[s.name]
		used := medianCPU(cpu[s.name])
		spread := fmt.Sprintf("(%.0f to %.0f)", slices.Min(f), slices.Max(f))
		fmt.Printf("  %-20s %8.0f  %-18s %4d + %d µs\n",
			s.name, median(f, identity), spread, used.own.Microseconds(), used.server.Microseconds())
	}
	for _, r := range c.ratios {
		if len(figures[r.over]) == 0 || len(figures[r.under]) == 0 {
			continue // left out by -only
		}
		each := make([]float64, rounds)
		for i := range each {
			each[i] = figures[r.over][i] / figures[r.under][i]
		}
		note := ""
		if r.target > 0 {
			note = fmt.Sprintf("  (target %.2f)", r.target)
		}
		fmt.Printf("ratio %s %.2f%s\n", r.name, median(each, identity), note)
	}
	return nil
}

// figure is what one measurement gave.
type figure struct {
	perSecond float64
	cpu       cpuTime // per unit
}

func (c comparison) measure(ctx context.Context, on *cluster, s side, round int, o options) (f figure, err error) {
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
		before := on.cpuTime()
		units, took, err := do(ctx)
		if err != nil {
			return err
		}
		f.perSecond = float64(units) / took.Seconds()
		f.cpu = on.cpuTime().per(before, units)
		return nil
	}
	if s.connections == 0 {
		return f, timed(nil)
	}
	err = on.withDatabase(ctx, s.connections, timed)
	return f, err
}

// median of what of makes of each value.
func median[T any, N cmp.Ordered](all []T, of func(T) N) N {
	figures := make([]N, len(all))
	for i := range all {
		figures[i] = of(all[i])
	}
	slices.Sort(figures)
	return figures[len(figures)/2]
}

func identity(f float64) float64 { return f }

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
			SELECT calls, rows, total_plan_time, total_exec_time, wal_bytes::bigint, left(regexp_replace(query, '\s+', ' ', 'g'), 110)
			FROM pg_stat_statements WHERE dbid = (SELECT oid FROM pg_database WHERE datname = current_database())
			ORDER BY total_plan_time + total_exec_time DESC LIMIT 10`)
		if err != nil {
			fmt.Println("statements:", err)
			return
		}
		defer rows.Close()
		fmt.Printf("\n%s\n  %8s %9s %10s %9s %9s\n", title, "calls", "rows", "plan ms", "exec ms", "WAL MB")
		for rows.Next() {
			var calls, n, wal int64
			var planning, executing float64
			var query string
			if err := rows.Scan(&calls, &n, &planning, &executing, &wal, &query); err != nil {
				fmt.Println("statements:", err)
				return
			}
			fmt.Printf("  %8d %9d %10.0f %9.0f %9.1f  %s\n", calls, n, planning, executing, float64(wal)/(1<<20), query)
		}
	}, nil
}
