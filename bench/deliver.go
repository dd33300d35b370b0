package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"golang.org/x/sync/errgroup"
)

// deliverConnections is the pool that each side has for delivering. None of them needs
// more: they write in batches.
const deliverConnections = 16

// deliverComparison posts events that were enqueued before, until all results are in
// the database.
func deliverComparison(o options) comparison {
	return comparison{
		name: "deliver",
		unit: "events",
		sides: []side{
			{name: "library", connections: deliverConnections, prepare: deliverLibrary(o)},
			{name: "river", connections: deliverConnections, prepare: deliverRiver(o)},
			{name: "bare_http", prepare: deliverBare(o)},
		},
		ratios: []ratio{
			{name: "deliver_vs_river", over: "library", under: "river", target: 1.5},
			{name: "deliver_vs_bare_http", over: "library", under: "bare_http"},
		},
	}
}

// snapshotComparison delivers as well, while a transaction that reads keeps everything
// that is finished from being cleared away, as a backup or a report does.
func snapshotComparison(o options) comparison {
	o.events = max(1, o.events/2) // River takes its time
	return comparison{
		name:      "snapshot",
		unit:      "events",
		maxRounds: 3,
		sides: []side{
			{name: "library", connections: deliverConnections, prepare: deliverLibrary(o)},
			{name: "library_kept", connections: deliverConnections + 1, prepare: keepingSnapshot(deliverLibrary(o))},
			{name: "river_kept", connections: deliverConnections + 1, prepare: keepingSnapshot(deliverRiver(o))},
		},
		ratios: []ratio{
			{name: "deliver_while_snapshot_is_kept", over: "library_kept", under: "library"},
			{name: "deliver_vs_river_while_snapshot_is_kept", over: "library_kept", under: "river_kept"},
		},
	}
}

func deliverLibrary(o options) func(context.Context, *pgxpool.Pool) (timedFunc, error) {
	return func(ctx context.Context, pool *pgxpool.Pool) (timedFunc, error) {
		hooks, err := newHooks(ctx, pool)
		if err != nil {
			return nil, err
		}
		to, err := newReceiver(o.events)
		if err != nil {
			return nil, err
		}
		err = o.createEndpoints(ctx, hooks, to.url)
		if err == nil {
			err = o.enqueueMany(ctx, hooks, pool, o.events)
		}
		if err != nil {
			return nil, errors.Join(err, to.close())
		}
		dispatcher, err := newDispatcher(hooks)
		if err != nil {
			return nil, errors.Join(err, to.close())
		}
		return func(ctx context.Context) (int, time.Duration, error) {
			defer hooks.Close()
			runCtx, stop := context.WithCancel(ctx)
			defer stop()
			ended := make(chan error, 1)
			start := time.Now()
			go func() { ended <- dispatcher.Run(runCtx) }()
			err := to.await(ctx)
			stop() // graceful: results are written out first
			err = errors.Join(err, <-ended)
			took := time.Since(start)
			if err == nil {
				err = expect(ctx, pool, o.events, `
					SELECT (SELECT count(*) FROM webhook.delivery_log) - (SELECT count(*) FROM webhook.delivery)
					       - (SELECT count(*) FROM webhook.outbox)`)
			}
			if err == nil {
				err = expect(ctx, pool, o.events, `SELECT count(*) FROM webhook.attempt WHERE status = 200`)
			}
			return o.events, took, errors.Join(err, to.close())
		}, nil
	}
}

func deliverRiver(o options) func(context.Context, *pgxpool.Pool) (timedFunc, error) {
	return func(ctx context.Context, pool *pgxpool.Pool) (timedFunc, error) {
		to, err := newReceiver(o.events)
		if err != nil {
			return nil, err
		}
		workers := river.NewWorkers()
		river.AddWorker(workers, newPostWorker(to.url))
		client, err := newRiver(ctx, pool, &river.Config{
			FetchCooldown: o.riverFetch,
			Queues:        map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: inFlight}},
			Workers:       workers,
		})
		if err == nil {
			err = insertJobs(ctx, client, o.events)
		}
		if err != nil {
			return nil, errors.Join(err, to.close())
		}
		return func(ctx context.Context) (int, time.Duration, error) {
			start := time.Now()
			if err := client.Start(ctx); err != nil {
				return 0, 0, errors.Join(err, to.close())
			}
			err := to.await(ctx)
			err = errors.Join(err, client.Stop(ctx)) // graceful as well
			took := time.Since(start)
			if err == nil {
				err = expect(ctx, pool, o.events, `SELECT count(*) FROM river_job WHERE state = 'completed'`)
			}
			return o.events, took, errors.Join(err, to.close())
		}, nil
	}
}

// keepingSnapshot has a transaction keep a snapshot while the prepared function runs.
func keepingSnapshot(prepare prepareFunc) prepareFunc {
	return func(ctx context.Context, pool *pgxpool.Pool) (timedFunc, error) {
		do, err := prepare(ctx, pool)
		if err != nil {
			return nil, err
		}
		return func(ctx context.Context) (units int, took time.Duration, err error) {
			reading, err := pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
			if err != nil {
				return 0, 0, err
			}
			defer func() { err = errors.Join(err, reading.Rollback(context.WithoutCancel(ctx))) }()
			if _, err := reading.Exec(ctx, `SELECT`); err != nil { // which takes the snapshot
				return 0, 0, err
			}
			return do(ctx)
		}, nil
	}
}

// deliverBare posts without any database.
func deliverBare(o options) func(context.Context, *pgxpool.Pool) (timedFunc, error) {
	return func(context.Context, *pgxpool.Pool) (timedFunc, error) {
		to, err := newReceiver(o.events)
		if err != nil {
			return nil, err
		}
		return func(ctx context.Context) (int, time.Duration, error) {
			client := newClient()
			defer client.CloseIdleConnections()
			var sent atomic.Int64
			start := time.Now()
			group, ctx := errgroup.WithContext(ctx)
			for range inFlight {
				group.Go(func() error {
					for n := sent.Add(1); n <= int64(o.events); n = sent.Add(1) {
						req, err := http.NewRequestWithContext(ctx, http.MethodPost, to.url, bytes.NewReader(payload(int(n))))
						if err != nil {
							return err
						}
						req.Header.Set("Content-Type", "application/json")
						if err := send(client, req); err != nil {
							return err
						}
					}
					return nil
				})
			}
			err := group.Wait()
			took := time.Since(start)
			return o.events, took, errors.Join(err, to.close())
		}, nil
	}
}

// expect checks that everything that was to be written is there.
func expect(ctx context.Context, pool *pgxpool.Pool, want int, query string) error {
	var got int
	if err := pool.QueryRow(ctx, query).Scan(&got); err != nil {
		return err
	}
	if got != want {
		return fmt.Errorf("the database holds %d results, want %d", got, want)
	}
	return nil
}
