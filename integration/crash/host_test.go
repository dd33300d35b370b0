package crash_test

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "modernc.org/sqlite"

	"github.com/outhook/webhook"
	"github.com/outhook/webhook/store/postgres"
	"github.com/outhook/webhook/store/sqlite"
)

// Kinds of database.
const (
	onPostgres = "postgres"
	onSQLite   = "sqlite"
)

// A process that is killed loses nothing by not waiting for the disk.
const sqliteOptions = "?_txlock=immediate&_pragma=busy_timeout(20000)&_pragma=journal_mode(wal)&_pragma=synchronous(off)"

// key seals the secrets of all processes.
func key() webhook.Key {
	return webhook.Key{ID: "test", Bytes: [32]byte([]byte("0123456789abcdef0123456789abcdef"))}
}

// host is a service that takes orders. Whether an order exists is written in the
// same transaction as its event: that is the ledger.
type host struct {
	backend    webhook.Backend
	endpoints  *webhook.Endpoints
	deliveries *webhook.Deliveries
	replays    *webhook.Replays
	dispatcher func(webhook.DispatcherConfig) (*webhook.Dispatcher, error)
	// order takes the order of an event, and lets think run before it commits; it rolls back
	// when think returns false.
	order  func(ctx context.Context, e webhook.Event, think func() bool) error
	orders func(ctx context.Context) (map[uuid.UUID]bool, error)
	// heardOf returns when each dispatcher was last heard of; on PostgreSQL only.
	heardOf func(ctx context.Context) (map[uuid.UUID]time.Time, error)
	close   func()
}

// options of a host.
type options struct {
	clock     webhook.Clock
	log       *slog.Logger
	transport func(http.RoundTripper) http.RoundTripper
	watch     watch
	listen    *pgx.ConnConfig
}

const createOrders = `CREATE TABLE IF NOT EXISTS orders (id TEXT PRIMARY KEY)`

func openHost(ctx context.Context, kind, url string, o options) (*host, error) {
	if kind == onPostgres {
		return openPostgres(ctx, url, o)
	}
	return openSQLite(ctx, url, o)
}

func openPostgres(ctx context.Context, url string, o options) (*host, error) {
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return nil, err
	}
	store, err := postgres.NewWithConfig(pool, postgres.Config{ListenConn: o.listen})
	if err != nil {
		return nil, err
	}
	if err := store.Migrate(ctx); err != nil {
		return nil, err
	}
	hooks, err := webhook.New(watched[pgx.Tx](store, o.watch), o.config())
	if err != nil {
		return nil, err
	}
	h := newHost(hooks)
	h.order = func(ctx context.Context, e webhook.Event, think func() bool) error {
		tx, err := pool.Begin(ctx)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
		if _, err := tx.Exec(ctx, `INSERT INTO orders (id) VALUES ($1)`, e.IdempotencyKey); err != nil {
			return err
		}
		if _, err := hooks.Enqueue(ctx, tx, e); err != nil || !think() {
			return err
		}
		return tx.Commit(ctx)
	}
	h.orders = func(ctx context.Context) (map[uuid.UUID]bool, error) {
		rows, err := pool.Query(ctx, `SELECT id FROM orders`)
		if err != nil {
			return nil, err
		}
		ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
		return idSet(ids), err
	}
	h.heardOf = func(ctx context.Context) (map[uuid.UUID]time.Time, error) {
		rows, err := pool.Query(ctx, `SELECT id, seen_at FROM webhook.dispatcher`)
		if err != nil {
			return nil, err
		}
		heard := make(map[uuid.UUID]time.Time)
		var id uuid.UUID
		var at time.Time
		_, err = pgx.ForEachRow(rows, []any{&id, &at}, func() error {
			heard[id] = at
			return nil
		})
		return heard, err
	}
	h.close = func() { hooks.Close(); pool.Close() }
	_, err = pool.Exec(ctx, createOrders)
	return h, err
}

func openSQLite(ctx context.Context, file string, o options) (*host, error) {
	db, err := sql.Open("sqlite", "file:"+file+sqliteOptions)
	if err != nil {
		return nil, err
	}
	store := sqlite.New(db)
	if err := store.Migrate(ctx); err != nil {
		return nil, err
	}
	hooks, err := webhook.New(watched[*sql.Tx](store, o.watch), o.config())
	if err != nil {
		return nil, err
	}
	h := newHost(hooks)
	h.order = func(ctx context.Context, e webhook.Event, think func() bool) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }()
		if _, err := tx.ExecContext(ctx, `INSERT INTO orders (id) VALUES (?)`, e.IdempotencyKey); err != nil {
			return err
		}
		if _, err := hooks.Enqueue(ctx, tx, e); err != nil || !think() {
			return err
		}
		return tx.Commit()
	}
	h.orders = func(ctx context.Context) (map[uuid.UUID]bool, error) {
		rows, err := db.QueryContext(ctx, `SELECT id FROM orders`)
		if err != nil {
			return nil, err
		}
		defer rows.Close()
		var ids []string
		for rows.Next() {
			var id string
			if err := rows.Scan(&id); err != nil {
				return nil, err
			}
			ids = append(ids, id)
		}
		return idSet(ids), rows.Err()
	}
	h.close = func() { hooks.Close(); db.Close() }
	_, err = db.ExecContext(ctx, createOrders)
	return h, err
}

func newHost[Tx any](hooks *webhook.Hooks[Tx]) *host {
	return &host{
		backend:    hooks.Backend(),
		endpoints:  hooks.Endpoints(),
		deliveries: hooks.Deliveries(),
		replays:    hooks.Replays(),
		dispatcher: hooks.NewDispatcher,
	}
}

func (o options) config() webhook.Config {
	loopback, err := webhook.NewTransport(webhook.TransportConfig{
		Allow: []webhook.AllowRule{{
			Prefix: netip.MustParsePrefix("127.0.0.1/32"),
			Ports:  []webhook.PortRange{{From: 1024, To: 65535}},
		}},
		AllowHTTP: true,
	})
	if err != nil {
		panic(err) // the configuration is a constant
	}
	c := webhook.Config{Clock: o.clock, Logger: o.log, Secrets: webhook.NewKeyring(key()), Transport: loopback}
	if o.transport != nil {
		c.Transport = loopback.Wrap(o.transport)
	}
	return c
}

// placed is the event of an order. The order's id is its idempotency key as well.
func placed(id uuid.UUID, tenant string) webhook.Event {
	return placedBy("", 0, id, tenant)
}

// placedBy is placed with a resource, whose events have versions that grow.
func placedBy(resource string, version int64, id uuid.UUID, tenant string) webhook.Event {
	return webhook.Event{
		Tenant: tenant, Type: "order.placed", IdempotencyKey: id.String(), ResourceID: resource, ResourceVersion: version,
		Payload: fmt.Appendf(nil, `{"order":%q,"resource":%q,"version":%d}`, id, resource, version),
	}
}

func idSet(ids []string) map[uuid.UUID]bool {
	set := make(map[uuid.UUID]bool, len(ids))
	for _, id := range ids {
		set[uuid.MustParse(id)] = true
	}
	return set
}

// unfinished lists what is not in a final state.
func (h *host) unfinished(ctx context.Context) ([]webhook.Delivery, error) {
	var all []webhook.Delivery
	for _, state := range []webhook.DeliveryState{webhook.StatePending, webhook.StateInFlight} {
		p := webhook.ListDeliveriesParams{Scope: webhook.AllTenants(), State: state, Limit: 1000}
		for {
			page, err := h.backend.ListDeliveries(ctx, p)
			if err != nil {
				return nil, err
			}
			all = append(all, page.Deliveries...)
			if page.Next == uuid.Nil {
				break
			}
			p.Before = page.Next
		}
	}
	return all, nil
}

// run runs a dispatcher until ctx ends.
func (h *host) run(ctx context.Context, cfg webhook.DispatcherConfig) error {
	d, err := h.dispatcher(cfg)
	if err != nil {
		return err
	}
	return d.Run(ctx)
}

// quick is a dispatcher for tests that wait for leases. Its circuits stay closed: on
// a busy machine requests are slow, which is not what is tested here.
func quick() webhook.DispatcherConfig {
	return webhook.DispatcherConfig{
		Breaker:           webhook.BreakerConfig{ConsecutiveFailures: -1, FailureRatio: -1, MaxLatency: -1},
		HeartbeatInterval: 200 * time.Millisecond,
		Lease:             6 * time.Second,
		PollInterval:      200 * time.Millisecond,
		RequestTimeout:    2 * time.Second,
		Retry:             webhook.RetrySchedule{Delays: []time.Duration{time.Second, time.Second, time.Second, time.Second}},
	}
}
