package main

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outhook/webhook"
)

const (
	claimers      = 100 // endpoints that are claimed for in one claim
	perClaimer    = 50  // deliveries that wait for each of them
	claimsMeasure = 200 // claims per side
)

// measureParked prints by how much claims for others slow down when one endpoint
// has very many due deliveries. Two databases are claimed from in turn, so that
// whatever else the machine does hits both.
func measureParked(ctx context.Context, c *cluster, parked int) error {
	return c.withDatabase(ctx, deliverConnections, func(quiet *pgxpool.Pool) error {
		return c.withDatabase(ctx, deliverConnections, func(crowded *pgxpool.Pool) error {
			without, err := newClaims(ctx, quiet, 0)
			if err != nil {
				return err
			}
			defer without.hooks.Close()
			with, err := newClaims(ctx, crowded, parked)
			if err != nil {
				return err
			}
			defer with.hooks.Close()
			if err := c.settle(ctx); err != nil {
				return err
			}
			var a, b []float64
			for i := range claimsMeasure {
				order := []struct {
					claims *claims
					into   *[]float64
				}{{without, &a}, {with, &b}}
				if i%2 == 1 {
					order[0], order[1] = order[1], order[0]
				}
				for _, side := range order {
					took, err := side.claims.once(ctx)
					if err != nil {
						return err
					}
					*side.into = append(*side.into, took.Seconds()*1000)
				}
			}
			fmt.Printf("\nclaim, %d deliveries of %d endpoints, %d claims a side: median ms\n", 2*claimers, claimers, claimsMeasure)
			fmt.Printf("  %-40s %8.2f\n", "with nothing else in the table", median(a, identity))
			fmt.Printf("  %-40s %8.2f\n", fmt.Sprintf("beside %d due of one endpoint", parked), median(b, identity))
			name := "claim_with_1M_parked"
			if parked != 1_000_000 {
				name = fmt.Sprintf("claim_with_%d_parked", parked)
			}
			fmt.Printf("ratio %s %.2f  (target 1.20)\n", name, median(b, identity)/median(a, identity))
			return nil
		})
	})
}

// claims claims for the same endpoints over and over, and hands everything back.
type claims struct {
	hooks     *webhook.Hooks[pgx.Tx]
	endpoints []uuid.UUID
}

func newClaims(ctx context.Context, pool *pgxpool.Pool, parked int) (*claims, error) {
	hooks, err := newHooks(ctx, pool)
	if err != nil {
		return nil, err
	}
	c := &claims{hooks: hooks}
	if err := (options{endpoints: 1}).enqueueMany(ctx, hooks, pool, 1); err != nil {
		return nil, err
	}
	fill := func(n int) (uuid.UUID, error) {
		e, err := hooks.Endpoints().Create(ctx, webhook.EndpointParams{
			Tenant: tenant(0), URL: "http://127.0.0.1:8080/", Types: []string{"nothing"},
		})
		if err != nil {
			return uuid.Nil, err
		}
		// Runs of one event, so that there is one payload.
		_, err = pool.Exec(ctx, `
			INSERT INTO webhook.delivery (id, event_id, endpoint_id, next_attempt_at, created_at, run, lane, tenant, event_type)
			SELECT gen_random_uuid(), e.id, $1, now() - n * interval '1 millisecond', now(), n, 0, e.tenant, e.type
			FROM webhook.event e, generate_series(1, $2::integer) n`, e.ID, n)
		return e.ID, err
	}
	for range claimers {
		id, err := fill(perClaimer)
		if err != nil {
			return nil, fmt.Errorf("filling the queue: %w", err)
		}
		c.endpoints = append(c.endpoints, id)
	}
	if parked > 0 {
		if _, err := fill(parked); err != nil {
			return nil, fmt.Errorf("parking deliveries: %w", err)
		}
	}
	if _, err := pool.Exec(ctx, `VACUUM ANALYZE webhook.delivery`); err != nil {
		return nil, err
	}
	return c, nil
}

// once claims two for each endpoint, and returns how long that took.
func (c *claims) once(ctx context.Context) (time.Duration, error) {
	now := time.Now()
	p := webhook.ClaimParams{Now: now, LeaseUntil: now.Add(time.Minute), Token: uuid.New()}
	for _, id := range c.endpoints {
		p.Requests = append(p.Requests, webhook.ClaimRequest{EndpointID: id, Limit: 2})
	}
	began := time.Now()
	claimed, err := c.hooks.Backend().Claim(ctx, p)
	took := time.Since(began)
	if err != nil {
		return 0, err
	}
	if len(claimed) != 2*claimers {
		return 0, fmt.Errorf("%d deliveries were claimed, want %d", len(claimed), 2*claimers)
	}
	results := make([]webhook.Result, len(claimed))
	for i := range claimed {
		results[i] = webhook.Result{
			Lease: webhook.Lease{DeliveryID: claimed[i].DeliveryID, Token: p.Token},
			State: webhook.StatePending, NextAttemptAt: claimed[i].DueAt, Lane: claimed[i].Lane,
		}
	}
	_, err = c.hooks.Backend().Record(ctx, webhook.RecordParams{Now: now, Results: results})
	return took, err
}
