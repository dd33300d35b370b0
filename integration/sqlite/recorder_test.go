package sqlite_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"regexp"
	"slices"
	"strings"
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
	deleted    int64 // by one transaction at most
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

// mostDeleted is how many rows one transaction deleted at most.
func (r *recorder) mostDeleted() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.deleted
}

// recordedConn records what it is told to run, and passes it on by preparing it.
type recordedConn struct {
	driver.Conn
	recorder *recorder
	deleted  int64 // by the present transaction
}

func (c *recordedConn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	c.recorder.add(query)
	stmt, err := c.Conn.(driver.ConnPrepareContext).PrepareContext(ctx, query)
	switch verb, _, _ := strings.Cut(strings.TrimSpace(query), " "); {
	case err != nil:
	case verb == "DELETE":
		return &deletion{Stmt: stmt, conn: c}, nil
	case verb == "COMMIT":
		c.recorder.mu.Lock()
		defer c.recorder.mu.Unlock()
		c.recorder.deleted = max(c.recorder.deleted, c.deleted)
		c.deleted = 0
	}
	return stmt, err
}

// deletion is a statement that deletes.
type deletion struct {
	driver.Stmt
	conn *recordedConn
}

func (d *deletion) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	result, err := d.Stmt.(driver.StmtExecContext).ExecContext(ctx, args)
	if err == nil {
		n, _ := result.RowsAffected() // none of the drivers has an error to give
		d.conn.deleted += n
	}
	return result, err
}

func (d *deletion) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	return d.Stmt.(driver.StmtQueryContext).QueryContext(ctx, args)
}

func (c *recordedConn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	return c.Conn.(driver.ConnBeginTx).BeginTx(ctx, opts)
}
