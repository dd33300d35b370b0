package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outhook/webhook"
	"github.com/outhook/webhook/admin"
	"github.com/outhook/webhook/internal/vitals"
	"github.com/outhook/webhook/store/postgres"
)

const (
	pageVisits = 60 // of each page, and of a log that is small fewer: its figures mean nothing
	bigTenant  = 500
)

// measurePages prints how long the pages of package admin take on the server, with very
// many deliveries over 10,000 endpoints: the median and the 95th percentile of each.
func measurePages(ctx context.Context, c *cluster, o options) error {
	return c.withDatabase(ctx, deliverConnections, func(pool *pgxpool.Pool) error {
		hooks, err := newHooks(ctx, pool)
		if err != nil {
			return err
		}
		defer hooks.Close()
		w := &pagesWorld{hooks: hooks, pool: pool, deliveries: o.logged, endpoints: max(o.logged/100, 10*bigTenant/5)}
		if err := w.fill(ctx); err != nil {
			return fmt.Errorf("filling the log: %w", err)
		}
		if err := w.pick(ctx); err != nil {
			return fmt.Errorf("picking what to look at: %w", err)
		}
		fmt.Printf("\npages, %d deliveries over %d endpoints, %d visits each: ms\n", w.deliveries, w.endpoints, w.visits())
		fmt.Printf("  %-52s %8s %8s %8s\n", "", "p50", "p95", "max")
		return w.visitAll(ctx)
	})
}

// pagesWorld is a host with a long log.
type pagesWorld struct {
	hooks                 *webhook.Hooks[pgx.Tx]
	pool                  *pgxpool.Pool
	deliveries, endpoints int
	endpoint, busy        uuid.UUID
	delivery, dead, event uuid.UUID
	replay                uuid.UUID
}

// fill writes endpoints, of which one tenant has 500, with their vitals, and a week of
// events, deliveries and attempts.
func (w *pagesWorld) fill(ctx context.Context) error {
	store := postgres.New(w.pool)
	now := time.Now()
	for ago := range 7 {
		if err := store.Maintain(ctx, webhook.MaintainParams{Now: now.AddDate(0, 0, -ago)}); err != nil {
			return err
		}
	}
	sample, err := w.hooks.Endpoints().Create(ctx, webhook.EndpointParams{Tenant: "tenant 1", URL: "http://127.0.0.1:8080/", Types: []string{"*"}})
	if err != nil {
		return err
	}
	w.endpoint = sample.ID
	var state vitals.State
	state.At, state.LastSuccess, state.LastFailure, state.LastStatus = now, now, now.Add(-time.Hour), 500
	for i := range 13 {
		at := now.Truncate(vitals.Fine).Add(-time.Duration(12-i) * vitals.Fine)
		state.Fine = append(state.Fine, vitals.Bucket{At: at, Counts: vitals.Counts{vitals.OK: 1000, vitals.Server: 3}})
		state.FineCourse.Past = append(state.FineCourse.Past, vitals.Percentiles{At: at, P50: 20, P95: 28, P99: 33})
	}
	for i := range 25 {
		at := now.Truncate(vitals.Coarse).Add(-time.Duration(24-i) * vitals.Coarse)
		state.Coarse = append(state.Coarse, vitals.Bucket{At: at, Counts: vitals.Counts{vitals.OK: 12000, vitals.Server: 30}})
		state.CoarseCourse.Past = append(state.CoarseCourse.Past, vitals.Percentiles{At: at, P50: 20, P95: 28, P99: 33})
	}
	doc, err := json.Marshal(&state)
	if err != nil {
		return err
	}
	const v7 = `(lpad(to_hex((extract(epoch FROM at) * 1000)::bigint), 12, '0') || '7' || substr(md5(random()::text), 1, 3) || '8' || substr(md5(random()::text), 1, 15))::uuid`
	for _, step := range []struct {
		sql  string
		args []any
	}{
		{`INSERT INTO webhook.endpoint (id, revision, created_at, updated_at, state_changed_at, tenant, url, types, state, state_reason, options, secrets)
			SELECT gen_random_uuid(), n, now(), now(), now(), 'tenant ' || CASE WHEN n % 20 = 0 THEN 0 ELSE n % 2000 END, 'https://hooks.example/' || n, '{*}', 'active', '', e.options, '[]'
			FROM generate_series(10, $1::int + 8) n, webhook.endpoint e WHERE e.id = $2`, []any{w.endpoints, sample.ID}},
		{`UPDATE webhook.endpoint_revision SET revision = $1::int + 10`, []any{w.endpoints}},
		{`INSERT INTO webhook.endpoint_vitals (endpoint_id, version, level, data)
			SELECT id, 1, CASE WHEN revision % 25 = 0 THEN 2 WHEN revision % 25 = 1 THEN 1 ELSE 0 END, $1 FROM webhook.endpoint`, []any{doc}},
		{`CREATE TABLE made AS SELECT n, now() - interval '6 days' * (1 - n / $1::float) AS at, random() AS luck FROM generate_series(1, $1::int) n`, []any{w.deliveries}},
		{`CREATE TABLE ranked AS SELECT id, tenant, row_number() OVER (ORDER BY id) - 1 AS rank FROM webhook.endpoint`, nil},
		{`CREATE UNIQUE INDEX ON ranked (rank)`, nil},
		{`ALTER TABLE made ADD COLUMN event_id uuid, ADD COLUMN id uuid`, nil},
		{`UPDATE made SET event_id = ` + v7 + `, id = ` + v7, nil},
		{`CREATE TABLE done AS SELECT made.*, ranked.id AS endpoint_id, ranked.tenant FROM made JOIN ranked ON ranked.rank = made.n % $1::int`, []any{w.endpoints}},
		{`INSERT INTO webhook.event (id, resource_version, created_at, tenant, type, resource_id, content_type, payload)
			SELECT event_id, 0, at, tenant, CASE WHEN n % 1000 = 0 THEN 'invoice.overdue' ELSE 'invoice.paid' END, 'in_' || n, '', '{"amount":4200,"currency":"EUR"}' FROM done`, nil},
		{`INSERT INTO webhook.delivery_log (id, event_id, endpoint_id, created_at, finished_at, run, attempts, last_status, tenant, event_type, last_class)
			SELECT id, event_id, endpoint_id, at, at + interval '1 second', 0, 3, 200, tenant, CASE WHEN n % 1000 = 0 THEN 'invoice.overdue' ELSE 'invoice.paid' END, '' FROM done WHERE luck < 0.94`, nil},
		{`INSERT INTO webhook.delivery_dead (id, event_id, endpoint_id, created_at, finished_at, run, attempts, last_status, state, reason, tenant, event_type, last_class)
			SELECT id, event_id, endpoint_id, at, at + interval '1 second', 0, 3, 500, 'dead', 'retries used up', tenant, 'invoice.paid', 'http_5xx' FROM done WHERE luck >= 0.94 AND luck < 0.97`, nil},
		{`INSERT INTO webhook.delivery (id, event_id, endpoint_id, next_attempt_at, created_at, run, lane, tenant, event_type, attempts, last_status, last_class)
			SELECT id, event_id, endpoint_id, now() + interval '1 hour' * random(), at, 0, 1, tenant, 'invoice.paid', 3, 503, 'http_5xx' FROM done WHERE luck >= 0.97`, nil},
		{`INSERT INTO webhook.attempt (delivery_id, event_id, endpoint_id, lease_token, started_at, latency_ns, number, status, truncated, late, tenant, class, error, location, excerpt, body_hash)
			SELECT id, event_id, endpoint_id, id, at + interval '1 second' * k, 42000000, k, CASE WHEN k < 3 OR luck >= 0.94 THEN 500 ELSE 200 END, false, false, tenant,
			       CASE WHEN k < 3 OR luck >= 0.94 THEN 'http_5xx' ELSE '' END, '', '', '', '' FROM done, generate_series(1, 3) k`, nil},
		{`DROP TABLE made, ranked, done`, nil},
	} {
		if _, err := w.pool.Exec(ctx, step.sql, step.args...); err != nil {
			return fmt.Errorf("%.60s: %w", step.sql, err)
		}
	}
	_, err = w.pool.Exec(ctx, `VACUUM ANALYZE`)
	return err
}

// pick chooses what is looked at.
func (w *pagesWorld) pick(ctx context.Context) error {
	for _, choice := range []struct {
		into *uuid.UUID
		sql  string
	}{
		{&w.busy, `SELECT id FROM webhook.endpoint WHERE tenant = 'tenant 0' ORDER BY id LIMIT 1`},
		{&w.delivery, `SELECT id FROM webhook.delivery_log ORDER BY id DESC OFFSET 100 LIMIT 1`},
		{&w.dead, `SELECT id FROM webhook.delivery_dead ORDER BY id DESC LIMIT 1`},
		{&w.event, `SELECT event_id FROM webhook.delivery_log ORDER BY id DESC OFFSET 200 LIMIT 1`},
	} {
		if err := w.pool.QueryRow(ctx, choice.sql).Scan(choice.into); err != nil {
			return err
		}
	}
	job, err := w.hooks.Replays().Create(ctx, webhook.AllTenants(), webhook.ReplayJobRequest{EndpointID: w.busy})
	w.replay = job.ID
	return err
}

func (w *pagesWorld) visitAll(ctx context.Context) error {
	operators, err := admin.New(w.hooks, admin.Config{Logger: slog.Default(), Authorize: func(*http.Request) (admin.Operator, error) { return admin.Operator{Name: "bench"}, nil }})
	if err != nil {
		return err
	}
	portal, err := admin.NewPortal(w.hooks, admin.PortalConfig{Logger: slog.Default(), Authorize: func(*http.Request) (admin.Member, error) {
		return admin.Member{Name: "bench", Tenant: "tenant 0"}, nil
	}})
	if err != nil {
		return err
	}
	one := "/endpoints/" + w.busy.String()
	pages := []string{
		"/", "/?range=day", "/endpoints", "/endpoints?health=failing", one, one + "/edit", one + "/secret", one + "/replay", one + "/replay?count=yes&what=all&window=7d",
		"/deliveries", "/deliveries?state=pending", "/deliveries?state=dead", "/deliveries?status=5xx", "/deliveries?type=invoice.overdue", "/deliveries?type=no.such",
		"/deliveries?within=1h", "/events", "/events?type=invoice.overdue", "/events?unmatched=yes", "/deliveries?endpoint=" + w.busy.String() + "&state=dead", "/replays", "/replays/" + w.replay.String(), "/verify",
	}
	everywhere := []string{"/deliveries/" + w.delivery.String(), "/deliveries/" + w.dead.String(), "/events/" + w.event.String(), "/find?q=" + w.event.String(), "/endpoints?tenant=tenant+0", "/deliveries?tenant=tenant+0"}
	var slow []string
	for _, side := range []struct {
		name    string
		handler http.Handler
		pages   []string
	}{{"operator", operators, slices.Concat(pages, everywhere)}, {"portal of 500 endpoints", portal, pages}} {
		for _, page := range side.pages {
			p95, err := w.visit(ctx, side.name, side.handler, page)
			if err != nil {
				return err
			}
			if p95 >= 100 {
				slow = append(slow, side.name+" "+page)
			}
		}
	}
	fmt.Printf("pages over 100 ms at the 95th percentile: %d (target 0)\n", len(slow))
	for _, page := range slow {
		fmt.Println("  slow:", page)
	}
	return nil
}

func (w *pagesWorld) visit(ctx context.Context, who string, h http.Handler, page string) (p95 float64, err error) {
	var took []float64
	for range w.visits() {
		r := httptest.NewRequestWithContext(ctx, http.MethodGet, page, nil)
		answer := httptest.NewRecorder()
		began := time.Now()
		h.ServeHTTP(answer, r)
		took = append(took, time.Since(began).Seconds()*1000)
		if answer.Code >= http.StatusBadRequest {
			return 0, errors.New(page + ": " + answer.Result().Status)
		}
	}
	slices.Sort(took)
	p95 = took[len(took)*95/100]
	name := page
	if len(name) > 38 {
		name = name[:12] + "…" + name[len(name)-24:]
	}
	fmt.Printf("  %-52s %8.1f %8.1f %8.1f\n", fmt.Sprintf("%-9.9s %s", who, name), took[len(took)/2], p95, took[len(took)-1])
	return p95, nil
}

func (w *pagesWorld) visits() int {
	return min(pageVisits, max(3, w.deliveries/10_000))
}
