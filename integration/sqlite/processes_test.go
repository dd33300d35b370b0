package sqlite_test

import (
	"bufio"
	"context"
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outhook/webhook"
	"github.com/outhook/webhook/store/sqlite"
)

// A process of its own is this test program, started again with these variables:
// what it is to do, and the data source.
const (
	childRole = "WEBHOOK_SQLITE_TEST_ROLE"
	childDSN  = "WEBHOOK_SQLITE_TEST_DSN"
)

func TestMain(m *testing.M) {
	role, dsn := os.Getenv(childRole), os.Getenv(childDSN)
	if role == "" {
		os.Exit(m.Run())
	}
	if err := child(role, dsn); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func child(role, dsn string) error {
	db, err := sql.Open(driverName, dsn)
	if err != nil {
		return err
	}
	store := sqlite.New(db)
	ctx := context.Background()
	if err := store.Migrate(ctx); err != nil {
		return err
	}
	fmt.Println("ready")
	switch role {
	case "migrate":
		return nil
	case "deliver":
		_, err := deliverUntilIdle(ctx, store)
		return err
	case "everything":
		return everythingForEver(ctx, store, db)
	}
	return fmt.Errorf("no role %q", role)
}

// deliverUntilIdle works like one of several dispatchers until nothing is left,
// and returns how many deliveries it recorded.
func deliverUntilIdle(ctx context.Context, store *sqlite.Store) (int, error) {
	m := newEveryone()
	recorded := 0
	for {
		result, err := store.FanOut(ctx, webhook.FanOutParams{Now: time.Now(), MaxEvents: 20, MaxDeliveries: 50, Matcher: m})
		if err != nil {
			return recorded, err
		}
		lanes, err := store.Ready(ctx, webhook.ReadyParams{Now: time.Now(), Limit: 100})
		if err != nil {
			return recorded, err
		}
		var due []uuid.UUID
		for _, l := range lanes {
			due = append(due, l.EndpointID)
		}
		claimed, token, err := claimFrom(ctx, store, 10, due...)
		if err != nil {
			return recorded, err
		}
		if err := record(ctx, store, claimed, token); err != nil {
			return recorded, err
		}
		recorded += len(claimed)
		if result.Events == 0 && !result.More && len(claimed) == 0 {
			return recorded, nil
		}
	}
}

// everythingForEver enqueues and delivers until the process is killed.
func everythingForEver(ctx context.Context, store *sqlite.Store, db *sql.DB) error {
	for {
		if err := hostTransaction(ctx, store, db); err != nil {
			return err
		}
		if _, err := deliverUntilIdle(ctx, store); err != nil {
			return err
		}
	}
}

// startChild starts a process and waits until it has opened the database.
func startChild(t *testing.T, role, dsn string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), childRole+"="+role, childDSN+"="+dsn)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "ready", strings.TrimSpace(line))
	return cmd
}

func TestProcessesMigrateAtOnce(t *testing.T) {
	t.Parallel()
	dsn := newFile(t) + options
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			cmd := exec.CommandContext(t.Context(), os.Args[0])
			cmd.Env = append(os.Environ(), childRole+"=migrate", childDSN+"="+dsn)
			out, err := cmd.CombinedOutput()
			assert.NoError(t, err, string(out))
		})
	}
	wg.Wait()

	require.NoError(t, sqlite.New(open(t, dsn)).CheckSchema(t.Context()))
}

func TestProcessesShareTheWorkOnOneFile(t *testing.T) {
	t.Parallel()
	const goroutines, each = 4, 25
	dsn := newFile(t) + options
	db := open(t, dsn)
	store := migrated(t, db)
	createInvoices(t, db)
	for range 2 {
		createEndpoint(t, store, "acme")
	}
	require.NoError(t, enqueue(t.Context(), store, db, newEvents(100, "acme")...))

	children := []*exec.Cmd{startChild(t, "deliver", dsn), startChild(t, "deliver", dsn)}
	require.NoError(t, hostTransactions(t.Context(), store, db, goroutines, each))
	for _, cmd := range children {
		require.NoError(t, cmd.Wait())
	}
	_, err := deliverUntilIdle(t.Context(), store) // what was enqueued after they left
	require.NoError(t, err)

	want := 2 * (100 + goroutines*each)
	assert.Equal(t, want, count(t, db, "SELECT count(*) FROM webhook_delivery_log"))
	assert.Equal(t, want, count(t, db, "SELECT count(*) FROM webhook_attempt WHERE late = 0"))
	assert.Zero(t, count(t, db, "SELECT count(*) FROM webhook_delivery"))
}

// kills is how often the child is killed; the long run kills more.
func kills() int {
	if os.Getenv("WEBHOOK_LONG") != "" {
		return 100
	}
	return 8
}

func TestAKilledProcessLeavesAConsistentDatabase(t *testing.T) {
	t.Parallel()
	dsn := newFile(t) + options
	db := open(t, dsn)
	store := migrated(t, db)
	createInvoices(t, db)
	for range 5 {
		createEndpoint(t, store, "acme")
	}
	for i := range kills() {
		cmd := startChild(t, "everything", dsn)
		before := count(t, db, "SELECT count(*) FROM webhook_event")
		require.Eventually(t, func() bool {
			return count(t, db, "SELECT count(*) FROM webhook_event") >= before+3
		}, 20*time.Second, time.Millisecond, "the child does its work")
		spin(time.Duration(i) * 700 * time.Microsecond) // at another point each time
		require.NoError(t, cmd.Process.Kill())
		require.Error(t, cmd.Wait(), "it was killed")
		assertConsistent(t, db)
	}

	// What the killed ones had leased is taken over once the leases expire.
	_, err := db.ExecContext(t.Context(), "UPDATE webhook_delivery SET lease_until = 1 WHERE lease_until <> 0")
	require.NoError(t, err)
	_, err = deliverUntilIdle(t.Context(), store)
	require.NoError(t, err)
	events := count(t, db, "SELECT count(*) FROM webhook_event")
	assert.Equal(t, events, count(t, db, "SELECT count(*) FROM invoice"), "events and the business change they tell of")
	assert.Equal(t, 5*events, count(t, db, "SELECT count(*) FROM webhook_delivery_log"))
}

// spin passes a time too short for a timer.
func spin(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); {
	}
}

func assertConsistent(t *testing.T, db *sql.DB) {
	t.Helper()
	var result string
	require.NoError(t, db.QueryRowContext(t.Context(), "PRAGMA quick_check").Scan(&result))
	require.Equal(t, "ok", result)
	for what, query := range map[string]string{
		"events and invoices": `SELECT (SELECT count(*) FROM webhook_event) - (SELECT count(*) FROM invoice)`,
		"events neither in the outbox nor delivered to all": `
			SELECT count(*) FROM webhook_event e WHERE NOT EXISTS (SELECT 1 FROM webhook_outbox WHERE event_seq = e.seq)
			AND 5 <> (SELECT count(*) FROM webhook_delivery WHERE event_seq = e.seq)
				+ (SELECT count(*) FROM webhook_delivery_log WHERE event_seq = e.seq)`,
		"deliveries both finished and not": `SELECT count(*) FROM webhook_delivery JOIN webhook_delivery_log USING (id)`,
		"finished deliveries without their attempt": `
			SELECT count(*) FROM webhook_delivery_log WHERE id NOT IN (SELECT delivery_id FROM webhook_attempt)`,
	} {
		assert.Zero(t, count(t, db, query), what)
	}
}
