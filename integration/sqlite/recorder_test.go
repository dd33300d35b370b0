package sqlite_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"regexp"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// recorder collects the statements that go through connections opened by it.
type recorder struct {
	driver driver.Driver
	dsn    string

	mu         sync.Mutex
	statements map[string]struct{}
}

// newRecorder opens a database whose statements are recorded.
func newRecorder(t testing.TB, dsn string) (*recorder, *sql.DB) {
	t.Helper()
	plain := open(t, dsn)
	r := &recorder{driver: plain.Driver(), dsn: dsn, statements: map[string]struct{}{}}
	db := sql.OpenDB(r)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return r, db
}

func (r *recorder) Driver() driver.Driver { return r.driver }

func (r *recorder) Connect(context.Context) (driver.Conn, error) {
	conn, err := r.driver.Open(r.dsn)
	if err != nil {
		return nil, err
	}
	return &recordedConn{Conn: conn, recorder: r}, nil
}

var rowsOfValues = regexp.MustCompile(`(\([?,x'0]+\),)+(\([?,x'0]+\))`)

func (r *recorder) add(statement string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	// Inserts of more or fewer rows have the same plan.
	r.statements[rowsOfValues.ReplaceAllString(statement, "$2")] = struct{}{}
}

func (r *recorder) all() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []string
	for s := range r.statements {
		all = append(all, s)
	}
	slices.Sort(all)
	return all
}

// recordedConn records what it is told to run, and passes it on by preparing it.
type recordedConn struct {
	driver.Conn
	recorder *recorder
}

func (c *recordedConn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	c.recorder.add(query)
	return c.Conn.(driver.ConnPrepareContext).PrepareContext(ctx, query)
}

func (c *recordedConn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	return c.Conn.(driver.ConnBeginTx).BeginTx(ctx, opts)
}
