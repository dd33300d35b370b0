//go:build compat

package postgres_test

import (
	"bytes"
	"fmt"
	"net"
	"net/url"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/outhook/webhook/internal/pgtest"
	"github.com/outhook/webhook/store/postgres"
	"github.com/outhook/webhook/store/storetest"
)

// The conformance suite through a real PgBouncer in transaction mode. The usual run
// has a stand-in, which is stricter: it gives each transaction another connection.
func TestConformanceThroughPgBouncer(t *testing.T) {
	t.Parallel()
	bouncer := startPgBouncer(t, pgtest.New(t))
	storetest.Run(t, storetest.Harness[pgx.Tx]{
		Open: func(t testing.TB) storetest.Database[pgx.Tx] {
			direct := migrated(t)
			listen, err := pgx.ParseConfig(direct)
			require.NoError(t, err)
			return &pgxDatabase{openPool(t, through(t, direct, bouncer), pgx.QueryExecModeExec), postgres.Config{ListenConn: listen}}
		},
		Notifications: true,
	})
}

func TestMigratingThroughPgBouncer(t *testing.T) {
	t.Parallel()
	direct := pgtest.New(t)
	pool := openPool(t, through(t, direct, startPgBouncer(t, direct)), pgx.QueryExecModeExec)
	store := postgres.New(pool)

	require.NoError(t, store.Migrate(t.Context()))
	require.NoError(t, store.CheckSchema(t.Context()))
	require.NoError(t, store.MigrateTo(t.Context(), 0))
}

// through is the URL of the same database by way of the pooler at address.
func through(t testing.TB, direct, address string) string {
	t.Helper()
	u, err := url.Parse(direct)
	require.NoError(t, err)
	u.Host = address
	return u.String()
}

// startPgBouncer starts Debian's PgBouncer in front of the server of a database, in
// transaction mode, and returns its address. It ends with the test.
func startPgBouncer(t testing.TB, databaseURL string) string {
	t.Helper()
	server, err := pgx.ParseConfig(databaseURL)
	require.NoError(t, err)
	program, err := osexec.LookPath("pgbouncer")
	if err != nil {
		program = "/usr/sbin/pgbouncer"
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := listener.Addr().(*net.TCPAddr)
	require.NoError(t, listener.Close())

	file := filepath.Join(t.TempDir(), "pgbouncer.ini")
	require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, `[databases]
* = host=%s port=%d user=%s password=%s
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 8
max_client_conn = 1000
server_idle_timeout = 5
`, server.Host, server.Port, server.User, server.Password, address.Port), 0o600))

	cmd := osexec.Command(program, file)
	if os.Geteuid() == 0 {
		cmd = osexec.Command(program, "-u", "postgres", file) // it refuses to be root
	}
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("pgbouncer: %s", said.String())
		}
	})
	bouncer := net.JoinHostPort("127.0.0.1", strconv.Itoa(address.Port))
	require.Eventually(t, func() bool {
		pool, err := pgxpool.New(t.Context(), through(t, databaseURL, bouncer))
		if err != nil {
			return false
		}
		defer pool.Close()
		return pool.Ping(t.Context()) == nil
	}, 30*time.Second, 20*time.Millisecond)
	return bouncer
}
