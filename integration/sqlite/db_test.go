package sqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/outhook/webhook"
	"github.com/outhook/webhook/store/sqlite"
)

// options are what a host puts into its data source name, but for the busy
// timeout, which is longer than one would choose: SQLite's lock is not fair, so
// that on a busy machine with the race detector eight writers of the host may
// keep the ninth waiting for seconds without any help of the library.
// Nothing is waited for until it is on the disk: a process that is killed loses nothing
// by that, and no machine is.
var options = "?" + busy(30000) + "&_txlock=immediate&" + unsynced

func newID() uuid.UUID { return uuid.Must(uuid.NewV7()) }

// open opens a data source for the length of the test.
func open(t testing.TB, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open(driverName, dsn)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

// newFile names a database file that does not exist yet.
func newFile(t testing.TB) string {
	t.Helper()
	return "file:" + filepath.Join(t.TempDir(), "app.db")
}

// migratedFile is a database that has been migrated, for tests to begin with a copy.
var migratedFile = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "sqlite")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "app.db")
	db, err := sql.Open(driverName, "file:"+file+options)
	if err != nil {
		return nil, err
	}
	// The last connection that is closed moves what was written into the file.
	if err := errors.Join(sqlite.New(db).Migrate(context.Background()), db.Close()); err != nil {
		return nil, err
	}
	return os.ReadFile(file)
})

// newMigratedFile makes a database file that has been migrated.
func newMigratedFile(t testing.TB) string {
	t.Helper()
	content, err := migratedFile()
	require.NoError(t, err)
	file := newFile(t)
	require.NoError(t, os.WriteFile(strings.TrimPrefix(file, "file:"), content, 0o600))
	return file
}

// newStore opens a new file that has been migrated.
func newStore(t testing.TB) (*sqlite.Store, *sql.DB) {
	t.Helper()
	db := open(t, newMigratedFile(t)+options)
	return sqlite.New(db), db
}

func migrated(t testing.TB, db *sql.DB) *sqlite.Store {
	t.Helper()
	store := sqlite.New(db)
	require.NoError(t, store.Migrate(t.Context()))
	return store
}

// configured is a store with a Config; nothing is migrated.
func configured(t testing.TB, db *sql.DB, config sqlite.Config) *sqlite.Store {
	t.Helper()
	store, err := sqlite.NewWithConfig(db, config)
	require.NoError(t, err)
	return store
}

func newEvent(tenant, key string) webhook.EventRecord {
	return webhook.EventRecord{
		ID: newID(), Tenant: tenant, Type: "order.created", IdempotencyKey: key, Payload: []byte(`{"n":1}`),
	}
}

func newEvents(n int, tenant string) []webhook.EventRecord {
	events := make([]webhook.EventRecord, n)
	for i := range events {
		events[i] = newEvent(tenant, "")
	}
	return events
}

// enqueue commits the events in a transaction of their own.
func enqueue(ctx context.Context, store *sqlite.Store, db *sql.DB, events ...webhook.EventRecord) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if _, err := store.InsertEvents(ctx, tx, events); err != nil {
		_ = tx.Rollback()
		return err
	}
	return tx.Commit()
}

func createEndpoint(t testing.TB, store *sqlite.Store, tenant string) webhook.EndpointRecord {
	t.Helper()
	e, err := store.CreateEndpoint(t.Context(), webhook.EndpointRecord{
		ID: newID(), Tenant: tenant, URL: "https://hooks.example/in", Types: []string{"*"},
		State: webhook.EndpointActive,
	})
	require.NoError(t, err)
	return e
}

// everyone matches every event with every endpoint of its tenant.
type everyone struct {
	revision  int64
	payloads  bool
	ordering  webhook.Ordering
	endpoints map[uuid.UUID]webhook.EndpointRecord
	sorted    map[string][]uuid.UUID
}

func newEveryone() *everyone {
	return &everyone{revision: -1, endpoints: map[uuid.UUID]webhook.EndpointRecord{}}
}

func (m *everyone) Revision() int64    { return m.revision }
func (m *everyone) WantsPayload() bool { return m.payloads }

func (m *everyone) Ordering(uuid.UUID) webhook.Ordering { return m.ordering }

func (m *everyone) Apply(endpoints []webhook.EndpointRecord, revision int64) error {
	for _, e := range endpoints {
		m.endpoints[e.ID] = e
		if !e.DeletedAt.IsZero() {
			delete(m.endpoints, e.ID)
		}
	}
	m.sorted = map[string][]uuid.UUID{}
	for id, e := range m.endpoints {
		m.sorted[e.Tenant] = append(m.sorted[e.Tenant], id)
	}
	for _, ids := range m.sorted {
		slices.SortFunc(ids, compareIDs)
	}
	m.revision = revision
	return nil
}

func (m *everyone) Match(dst []uuid.UUID, event *webhook.EventRecord, after uuid.UUID, limit int) ([]uuid.UUID, bool) {
	ids := m.sorted[event.Tenant]
	first, found := slices.BinarySearchFunc(ids, after, compareIDs)
	if found {
		first++
	}
	ids = ids[first:]
	return append(dst, ids[:min(limit, len(ids))]...), len(ids) > limit
}

func compareIDs(a, b uuid.UUID) int { return slices.Compare(a[:], b[:]) }

// fanOutAll empties the outbox.
func fanOutAll(ctx context.Context, store *sqlite.Store, m webhook.Matcher) error {
	for {
		result, err := store.FanOut(ctx, webhook.FanOutParams{
			Now: time.Now(), MaxEvents: 1000, MaxDeliveries: 1000, Matcher: m,
		})
		if err != nil || !result.More {
			return err
		}
	}
}

// claimFrom claims up to limit first attempts of each endpoint.
func claimFrom(ctx context.Context, store *sqlite.Store, limit int, endpoints ...uuid.UUID) ([]webhook.Claimed, uuid.UUID, error) {
	now := time.Now()
	p := webhook.ClaimParams{Now: now, LeaseUntil: now.Add(90 * time.Second), Token: newID()}
	for _, id := range endpoints {
		p.Requests = append(p.Requests, webhook.ClaimRequest{EndpointID: id, Lane: webhook.LaneFirst, Limit: limit})
	}
	claimed, err := store.Claim(ctx, p)
	return claimed, p.Token, err
}

// delivered is the result of a first attempt that succeeded.
func delivered(c webhook.Claimed, token uuid.UUID) webhook.Result {
	return webhook.Result{
		Lease: webhook.Lease{DeliveryID: c.DeliveryID, Token: token},
		State: webhook.StateDelivered,
		Attempt: &webhook.Attempt{
			DeliveryID: c.DeliveryID, EventID: c.Event.ID, EndpointID: c.EndpointID, Tenant: c.Event.Tenant,
			Number: c.Attempts + 1, StartedAt: time.Now(), Latency: 20 * time.Millisecond, Status: 200,
			Excerpt: []byte("ok"), BodyHash: make([]byte, 32),
		},
	}
}

func record(ctx context.Context, store *sqlite.Store, claimed []webhook.Claimed, token uuid.UUID) error {
	results := make([]webhook.Result, len(claimed))
	for i, c := range claimed {
		results[i] = delivered(c, token)
	}
	_, err := store.Record(ctx, webhook.RecordParams{Now: time.Now(), Results: results})
	return err
}

// deliverAll claims and records until nothing is due, and returns how much it was.
func deliverAll(ctx context.Context, store *sqlite.Store, limit int, endpoints ...uuid.UUID) (int, error) {
	total := 0
	for {
		claimed, token, err := claimFrom(ctx, store, limit, endpoints...)
		if err != nil || len(claimed) == 0 {
			return total, err
		}
		if err := record(ctx, store, claimed, token); err != nil {
			return total, err
		}
		total += len(claimed)
	}
}

// count returns a number that a query gives.
func count(t testing.TB, db *sql.DB, query string, args ...any) int {
	t.Helper()
	var n int
	require.NoError(t, db.QueryRowContext(t.Context(), query, args...).Scan(&n))
	return n
}
