package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// measureMemory prints by how much the heap of a dispatcher grows when deliveries wait
// that it may not send: its endpoints answer none of the requests that it may have in
// flight.
func measureMemory(ctx context.Context, c *cluster, o options) error {
	var growth int64
	err := c.withDatabase(ctx, deliverConnections, func(pool *pgxpool.Pool) (err error) {
		growth, err = heapGrowth(ctx, pool, o)
		return err
	})
	if err != nil {
		return err
	}
	fmt.Printf("\nmemory, heap growth with %d deliveries pending: %.1f KiB\n", o.pending, float64(growth)/(1<<10))
	fmt.Printf("ratio memory_bytes_per_pending %.1f\n", float64(growth)/float64(o.pending))
	return nil
}

func heapGrowth(ctx context.Context, pool *pgxpool.Pool, o options) (growth int64, err error) {
	hooks, err := newHooks(ctx, pool)
	if err != nil {
		return 0, err
	}
	defer hooks.Close()
	to, err := newReceiver(0)
	if err != nil {
		return 0, err
	}
	to.hold = make(chan struct{})
	defer func() { err = errors.Join(err, to.close()) }()
	defer close(to.hold)
	if err := o.createEndpoints(ctx, hooks, to.url); err != nil {
		return 0, err
	}
	dispatcher, err := newDispatcher(hooks)
	if err != nil {
		return 0, err
	}

	runCtx, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- dispatcher.Run(runCtx) }()
	// The endpoints' requests are under way before, so that what they take is not
	// counted: only what waits behind them.
	if err := o.enqueueMany(ctx, hooks, pool, 2*inFlight); err != nil {
		return 0, err
	}
	if err := awaitPending(ctx, pool, 2*inFlight); err != nil {
		return 0, err
	}
	before := heap()
	if err := o.enqueueMany(ctx, hooks, pool, o.pending); err != nil {
		return 0, err
	}
	if err := awaitPending(ctx, pool, o.pending+2*inFlight); err != nil {
		return 0, err
	}
	growth = heap() - before

	stop()
	to.server.Close() // ends the requests under way
	return growth, <-ended
}

// awaitPending waits until so many deliveries are unfinished.
func awaitPending(ctx context.Context, pool *pgxpool.Pool, want int) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		var n int
		if err := pool.QueryRow(ctx, `SELECT count(*) FROM webhook.delivery`).Scan(&n); err != nil {
			return err
		}
		if n >= want {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%d of %d deliveries are pending: %w", n, want, ctx.Err())
		}
	}
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
