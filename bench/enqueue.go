package main

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"golang.org/x/sync/errgroup"

	"github.com/outhook/webhook"
)

// writers is how many connections enqueue at once.
const writers = 8

// enqueueComparison writes one event per transaction, from several connections at
// once.
func enqueueComparison(o options) comparison {
	return comparison{
		name: "enqueue",
		unit: "transactions",
		sides: []side{
			{name: "library", connections: writers, prepare: enqueueLibrary(o, o.event)},
			{name: "library_with_key", connections: writers, prepare: enqueueLibrary(o, o.keyedEvent)},
			{name: "river", connections: writers, prepare: enqueueRiver(o)},
			{name: "bare_insert", connections: writers, prepare: enqueueBare(o)},
		},
		ratios: []ratio{
			{name: "enqueue_vs_river", over: "library", under: "river", target: 2},
			{name: "enqueue_with_key_vs_river", over: "library_with_key", under: "river"},
			{name: "enqueue_vs_bare_insert", over: "library", under: "bare_insert"},
		},
	}
}

type (
	timedFunc   = func(context.Context) (units int, took time.Duration, err error)
	prepareFunc = func(context.Context, *pgxpool.Pool) (timedFunc, error)
)

func enqueueLibrary(o options, event func(n int) webhook.Event) func(context.Context, *pgxpool.Pool) (timedFunc, error) {
	return func(ctx context.Context, pool *pgxpool.Pool) (timedFunc, error) {
		hooks, err := newHooks(ctx, pool)
		if err != nil {
			return nil, err
		}
		write := transactions(pool, func(ctx context.Context, tx pgx.Tx, n int) error {
			_, err := hooks.Enqueue(ctx, tx, event(n))
			return err
		})
		return func(ctx context.Context) (int, time.Duration, error) {
			defer hooks.Close()
			return forPeriod(ctx, o.period, write)
		}, nil
	}
}

func enqueueRiver(o options) func(context.Context, *pgxpool.Pool) (timedFunc, error) {
	return func(ctx context.Context, pool *pgxpool.Pool) (timedFunc, error) {
		client, err := newRiver(ctx, pool, &river.Config{})
		if err != nil {
			return nil, err
		}
		write := transactions(pool, func(ctx context.Context, tx pgx.Tx, n int) error {
			id, err := uuid.NewV7()
			if err != nil {
				return err
			}
			_, err = client.InsertTx(ctx, tx, postArgs{EventID: id, Payload: payload(n)}, nil)
			return err
		})
		return func(ctx context.Context) (int, time.Duration, error) {
			return forPeriod(ctx, o.period, write)
		}, nil
	}
}

func enqueueBare(o options) func(context.Context, *pgxpool.Pool) (timedFunc, error) {
	return func(ctx context.Context, pool *pgxpool.Pool) (timedFunc, error) {
		_, err := pool.Exec(ctx, `CREATE TABLE bare (
			id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, payload bytea NOT NULL)`)
		if err != nil {
			return nil, err
		}
		write := transactions(pool, func(ctx context.Context, tx pgx.Tx, n int) error {
			_, err := tx.Exec(ctx, `INSERT INTO bare (payload) VALUES ($1)`, []byte(payload(n)))
			return err
		})
		return func(ctx context.Context) (int, time.Duration, error) {
			return forPeriod(ctx, o.period, write)
		}, nil
	}
}

// transactions returns a function that does one thing in a transaction of its own, as a
// host would.
func transactions(pool *pgxpool.Pool, do func(ctx context.Context, tx pgx.Tx, n int) error) func(context.Context, int) error {
	return func(ctx context.Context, n int) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return do(ctx, tx, n) })
	}
}

// forPeriod calls do from several goroutines and counts how often it ended within the
// period. A tenth of it more goes before, to open connections and prepare statements.
func forPeriod(ctx context.Context, period time.Duration, do func(ctx context.Context, n int) error) (int, time.Duration, error) {
	var calls, counted atomic.Int64
	var start time.Time
	warm := sync.OnceFunc(func() {
		counted.Store(0)
		start = time.Now()
	})
	warmUp := time.Now().Add(period / 10)
	end := warmUp.Add(period)
	group, ctx := errgroup.WithContext(ctx)
	for range writers {
		group.Go(func() error {
			for {
				if err := do(ctx, int(calls.Add(1))); err != nil {
					return err
				}
				now := time.Now()
				if now.After(warmUp) {
					warm()
				}
				if now.After(end) {
					return nil
				}
				counted.Add(1)
			}
		})
	}
	err := group.Wait()
	return int(counted.Load()), time.Since(start), err
}
