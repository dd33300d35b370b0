package pgtest_test

import (
	"bufio"
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/outhook/webhook/internal/pgtest"
)

// childEnv makes this test binary a program that starts a server and hangs, for the
// test that kills it.
const childEnv = "PGTEST_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		hangWithServer()
	}
	goleak.VerifyTestMain(m)
}

func TestEachTestHasADatabaseOfItsOwn(t *testing.T) {
	t.Parallel()

	a, b := pgtest.Pool(t), pgtest.Pool(t)
	_, err := a.Exec(t.Context(), `CREATE TABLE only_here (id int)`)
	require.NoError(t, err)

	var there bool
	require.NoError(t, b.QueryRow(t.Context(), `SELECT to_regclass('only_here') IS NOT NULL`).Scan(&there))
	assert.False(t, there)
}

func TestADatabaseIsDroppedWhenItsTestEndsEvenWithConnectionsOpen(t *testing.T) {
	t.Parallel()

	var (
		databaseURL string
		leftOpen    *pgx.Conn
	)
	t.Run("a test that forgets its connection", func(t *testing.T) {
		databaseURL = pgtest.New(t)
		var err error
		leftOpen, err = pgx.Connect(t.Context(), databaseURL)
		require.NoError(t, err)
	})
	defer leftOpen.Close(context.Background())

	_, err := pgx.Connect(t.Context(), databaseURL)
	require.ErrorContains(t, err, "does not exist")
}

func TestATemplateIsPreparedOnceAndCopied(t *testing.T) {
	t.Parallel()

	var prepared atomic.Int32
	// -count=20 finds the template of the first run on the same server.
	tmpl := pgtest.Template{
		Name: "pgtest_" + strconv.FormatInt(time.Now().UnixNano(), 36),
		Prepare: func(ctx context.Context, databaseURL string) error {
			prepared.Add(1)
			conn, err := pgx.Connect(ctx, databaseURL)
			if err != nil {
				return err
			}
			defer conn.Close(ctx)
			_, err = conn.Exec(ctx, `CREATE TABLE prepared (id int)`)
			return err
		},
	}
	t.Run("copies", func(t *testing.T) {
		for i := range 4 {
			t.Run(strconv.Itoa(i), func(t *testing.T) {
				t.Parallel()
				pool := pgtest.Open(t, pgtest.NewFrom(t, tmpl))
				_, err := pool.Exec(t.Context(), `INSERT INTO prepared VALUES (1)`)
				require.NoError(t, err)
				var rows int
				require.NoError(t, pool.QueryRow(t.Context(), `SELECT count(*) FROM prepared`).Scan(&rows))
				assert.Equal(t, 1, rows)
			})
		}
	})
	assert.EqualValues(t, 1, prepared.Load())
}

func TestACrashedServerKeepsWhatWasCommittedWhenDurable(t *testing.T) {
	t.Parallel()

	server := pgtest.Start(t, pgtest.Options{Durable: true, Settings: map[string]string{"max_connections": "20"}})
	databaseURL := pgtest.On(t, server)
	conn, err := pgx.Connect(t.Context(), databaseURL)
	require.NoError(t, err)
	_, err = conn.Exec(t.Context(), `CREATE TABLE kept (id int); INSERT INTO kept VALUES (7)`)
	require.NoError(t, err)

	require.NoError(t, server.Crash())
	require.Error(t, conn.Ping(t.Context()))
	require.NoError(t, server.Restart())

	conn, err = pgx.Connect(t.Context(), databaseURL)
	require.NoError(t, err)
	defer conn.Close(context.Background())
	var (
		id             int
		fsync, maxConn string
	)
	require.NoError(t, conn.QueryRow(t.Context(),
		`SELECT id, current_setting('fsync'), current_setting('max_connections') FROM kept`).Scan(&id, &fsync, &maxConn))
	assert.Equal(t, 7, id)
	assert.Equal(t, "on", fsync)
	assert.Equal(t, "20", maxConn)
}

func TestAKilledTestBinaryLeavesNoServerAndNoFiles(t *testing.T) {
	t.Parallel()

	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), childEnv+"=1")
	stdout, err := child.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())
	line, err := bufio.NewReader(stdout).ReadString('\n')
	require.NoError(t, err)
	serverURL, dir, ok := strings.Cut(strings.TrimSpace(line), " ")
	require.True(t, ok)
	require.DirExists(t, dir)

	require.NoError(t, child.Process.Signal(syscall.SIGKILL))
	require.Error(t, child.Wait())

	assert.Eventually(t, func() bool {
		_, statErr := os.Stat(dir)
		return os.IsNotExist(statErr)
	}, time.Minute, 10*time.Millisecond, "the cluster's directory is still there")
	_, err = pgx.Connect(t.Context(), serverURL)
	require.Error(t, err)
}

// hangWithServer prints the URL and the directory of a server, and waits to be killed.
func hangWithServer() {
	server, err := pgtest.StartServer(pgtest.Options{})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(server.URL(), server.Dir())
	for {
		time.Sleep(time.Hour)
	}
}

func TestAServerAsksForItsPassword(t *testing.T) {
	t.Parallel()

	u, err := url.Parse(pgtest.New(t))
	require.NoError(t, err)
	u.User = url.UserPassword(u.User.Username(), "guessed")
	_, err = pgx.Connect(t.Context(), u.String())
	require.ErrorContains(t, err, "password authentication failed")
}

func TestAMachineWithoutPostgreSQLIsToldHowToInstallIt(t *testing.T) {
	t.Setenv(pgtest.BinEnv, t.TempDir())

	_, err := pgtest.StartServer(pgtest.Options{})
	require.ErrorIs(t, err, pgtest.ErrNotInstalled)
	assert.ErrorContains(t, err, "install")
}
