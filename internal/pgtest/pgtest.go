// Package pgtest gives tests a real PostgreSQL: a throw-away cluster, and in it a
// fresh database for each test.
//
//	func TestSomething(t *testing.T) {
//		t.Parallel()
//		pool := pgtest.Pool(t) // an empty database of its own
//		...
//	}
//
// The cluster is the one named by the environment variable WEBHOOK_TEST_POSTGRES
// where it is set (`make test` starts one for all packages), otherwise one that the
// first test of the package starts. It needs no TestMain: a supervisor that holds a
// pipe to the test binary stops the server and removes its files when the binary
// ends, however it ends, so a panic or kill -9 leaves nothing behind.
//
// A machine without PostgreSQL fails the test with the command that installs it;
// nothing is ever skipped. The package is for _test files and for the nested modules
// of this repository only.
package pgtest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Env names the environment variable with the URL of a running server that tests
// share. Its user must be allowed to create databases.
const Env = "WEBHOOK_TEST_POSTGRES"

// adminTimeout bounds creating or dropping one database. It is generous, because
// every test of every package may ask at once on a small machine.
const adminTimeout = 60 * time.Second

// New returns the URL of a new, empty database that belongs to t alone. It is dropped,
// with whatever is still connected to it, when t ends.
func New(t testing.TB) string {
	t.Helper()

	return create(t, sharedURL(t), "template1")
}

// Template is a prepared database that NewFrom copies, so that migrating it is paid
// for once and not by every test.
type Template struct {
	// Name tells templates of one server apart; lower-case letters, digits and
	// underscores, at most 40. Packages that share a server and a name share the
	// template, so equal names must mean equal contents.
	Name string
	// Prepare fills the empty database at the URL and closes every connection to it.
	Prepare func(ctx context.Context, databaseURL string) error
}

// NewFrom is New with a copy of the template instead of an empty database.
func NewFrom(t testing.TB, tmpl Template) string {
	t.Helper()

	server := sharedURL(t)
	if err := ensureTemplate(t.Context(), server, tmpl); err != nil {
		t.Fatalf("pgtest: preparing template %q: %v", tmpl.Name, err)
	}
	return create(t, server, templateDatabase(tmpl.Name))
}

// Pool returns a pool on a new, empty database. It is closed before the database is
// dropped when t ends.
func Pool(t testing.TB) *pgxpool.Pool {
	t.Helper()

	return Open(t, New(t))
}

// Open returns a pool on the database at the URL, closed when t ends.
func Open(t testing.TB, databaseURL string) *pgxpool.Pool {
	t.Helper()

	pool, err := pgxpool.New(t.Context(), databaseURL)
	if err != nil {
		t.Fatalf("pgtest: opening a pool: %v", err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// On returns the URL of a new, empty database on a server that the test started
// itself with Start, dropped when t ends.
func On(t testing.TB, s *Server) string {
	t.Helper()

	return create(t, s.URL(), "template1")
}

// shared is the cluster of this test binary. The Server must stay reachable: when its
// end of the supervisor's pipe is closed, the cluster goes away.
var shared struct {
	once   sync.Once
	server *Server
	err    error
}

func sharedURL(t testing.TB) string {
	t.Helper()

	if u := fromEnv(); u != "" {
		return u
	}
	shared.once.Do(func() { shared.server, shared.err = StartServer(Options{}) })
	if shared.err != nil {
		t.Fatalf("pgtest: %v", shared.err)
	}
	return shared.server.URL()
}

func create(t testing.TB, server, template string) string {
	t.Helper()

	name := databaseName(t.Name())
	if err := admin(t.Context(), server, "CREATE DATABASE "+quote(name)+" TEMPLATE "+quote(template)); err != nil {
		t.Fatalf("pgtest: creating a database: %v", err)
	}
	t.Cleanup(func() {
		// t.Context() has ended by now.
		err := admin(context.Background(), server, "DROP DATABASE IF EXISTS "+quote(name)+" WITH (FORCE)")
		if err != nil {
			t.Errorf("pgtest: dropping a database: %v", err)
		}
	})
	return withDatabase(server, name)
}

// ensureTemplate makes the template's database unless it is there. It is filled under
// another name and renamed when whole, so that a template which exists is complete;
// the advisory lock makes packages that run at the same time wait for one another.
func ensureTemplate(ctx context.Context, server string, tmpl Template) error {
	if !templateName.MatchString(tmpl.Name) {
		return fmt.Errorf("name must match %s", templateName)
	}
	ctx, cancel := context.WithTimeout(ctx, adminTimeout)
	defer cancel()
	conn, err := pgx.Connect(ctx, server)
	if err != nil {
		return fmt.Errorf("connecting: %w", err)
	}
	defer conn.Close(ctx)

	final := templateDatabase(tmpl.Name)
	if there, err := databaseExists(ctx, conn, final); err != nil || there {
		return err
	}
	// A session lock, because CREATE DATABASE refuses to run in a transaction; the
	// end of the connection releases it.
	if _, err := conn.Exec(ctx, `SELECT pg_advisory_lock(hashtextextended($1, 0))`, final); err != nil {
		return fmt.Errorf("locking: %w", err)
	}
	if there, err := databaseExists(ctx, conn, final); err != nil || there {
		return err
	}
	draft := final + "_draft"
	if err := execute(ctx, conn,
		"DROP DATABASE IF EXISTS "+quote(draft)+" WITH (FORCE)",
		"CREATE DATABASE "+quote(draft)); err != nil {
		return err
	}
	if err := tmpl.Prepare(ctx, withDatabase(server, draft)); err != nil {
		return err
	}
	return execute(ctx, conn, "ALTER DATABASE "+quote(draft)+" RENAME TO "+quote(final))
}

var templateName = regexp.MustCompile(`^[a-z0-9_]{1,40}$`)

func templateDatabase(name string) string { return "template_" + name }

func databaseExists(ctx context.Context, conn *pgx.Conn, name string) (bool, error) {
	var there bool
	err := conn.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)`, name).Scan(&there)
	if err != nil {
		return false, fmt.Errorf("looking for database %s: %w", name, err)
	}
	return there, nil
}

// admin runs one statement on the server's own database over a connection of its own:
// a pool kept open between tests would be reported by goleak.
func admin(ctx context.Context, server, sql string) error {
	ctx, cancel := context.WithTimeout(ctx, adminTimeout)
	defer cancel()
	conn, err := pgx.Connect(ctx, server)
	if err != nil {
		return fmt.Errorf("connecting: %w", err)
	}
	return errors.Join(execute(ctx, conn, sql), conn.Close(ctx))
}

func execute(ctx context.Context, conn *pgx.Conn, statements ...string) error {
	for _, sql := range statements {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return fmt.Errorf("%s: %w", sql, err)
		}
	}
	return nil
}

var notInName = regexp.MustCompile(`[^a-z0-9]+`)

// databaseName says which test a database belongs to, for whoever looks at
// pg_stat_activity, and stays under PostgreSQL's 63 bytes.
func databaseName(test string) string {
	readable := strings.Trim(notInName.ReplaceAllString(strings.ToLower(test), "_"), "_")
	var random [6]byte
	_, _ = rand.Read(random[:]) // crypto/rand.Read never fails
	return "t_" + readable[:min(len(readable), 40)] + "_" + hex.EncodeToString(random[:])
}

func quote(identifier string) string { return pgx.Identifier{identifier}.Sanitize() }

func withDatabase(server, name string) string {
	u, err := url.Parse(server)
	if err != nil {
		panic("pgtest: server URL: " + err.Error()) // checked where it came in
	}
	u.Path = "/" + name
	return u.String()
}
