package main

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outhook/webhook"
	"github.com/outhook/webhook/internal/pgtest"
	"github.com/outhook/webhook/store/postgres"
	"github.com/outhook/webhook/store/sqlite"
)

// underTest makes this test binary the command itself: the tests run it in a process of
// its own, with real arguments, streams, signals and exit statuses.
const underTest = "WEBHOOK_COMMAND_UNDER_TEST"

func TestMain(m *testing.M) {
	if os.Getenv(underTest) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

const testKey = "test:MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="

// world is a database and the environment in which commands run on it.
type world struct {
	url string
	env []string
}

// onBoth runs a test on a real PostgreSQL and on a real SQLite file.
func onBoth(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	t.Run("postgresql", func(t *testing.T) { t.Parallel(); test(t, newWorld(pgtest.New(t))) })
	t.Run("sqlite", func(t *testing.T) { t.Parallel(); test(t, newWorld(filepath.Join(t.TempDir(), "shop.db"))) })
}

func newWorld(url string) *world {
	return &world{url: url, env: []string{"WEBHOOK_DATABASE=" + url, "WEBHOOK_KEYS=" + testKey}}
}

// result is what a command did.
type result struct {
	out, err string
	status   int
}

func (w *world) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, os.Args[0], args...)
	// The race detector would wait for a second at every exit.
	cmd.Env = append([]string{underTest + "=1", "HOME=/nonexistent", "GORACE=atexit_sleep_ms=0"}, w.env...)
	return cmd
}

func (w *world) run(t *testing.T, args ...string) result {
	t.Helper()
	return w.answer(t, "", args...)
}

// answer runs a command whose input is a text.
func (w *world) answer(t *testing.T, input string, args ...string) result {
	t.Helper()
	cmd := w.command(t.Context(), args...)
	cmd.Stdin = strings.NewReader(input)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		require.NoError(t, err)
	}
	return result{out.String(), errs.String(), cmd.ProcessState.ExitCode()}
}

// must runs a command that succeeds, and decodes the JSON that it prints.
func (w *world) must(t *testing.T, into any, args ...string) {
	t.Helper()
	got := w.run(t, append(args, "--json")...)
	require.Zero(t, got.status, "%s%s", got.out, got.err)
	require.NoError(t, json.Unmarshal([]byte(got.out), into), got.out)
}

func (w *world) migrated(t *testing.T) *world {
	t.Helper()
	got := w.run(t, "migrate", "up")
	require.Zero(t, got.status, got.err)
	return w
}

// service is what a host has: hooks, and how it commits an event.
type service struct {
	hooks   hooks
	enqueue func(t *testing.T, e webhook.Event)
}

// service opens the database as a host does, which allows loopback.
func (w *world) service(t *testing.T) *service {
	t.Helper()
	key, err := webhook.ParseKey(testKey)
	require.NoError(t, err)
	transport, err := webhook.NewTransport(webhook.TransportConfig{
		Allow:     []webhook.AllowRule{{Excerpts: true, Prefix: netip.MustParsePrefix("127.0.0.1/32"), Ports: []webhook.PortRange{{From: 1024, To: 65535}}}},
		AllowHTTP: true,
	})
	require.NoError(t, err)
	cfg := webhook.Config{Secrets: webhook.NewKeyring(key), Transport: transport}
	if isPostgres(w.url) {
		pool := pgtest.Open(t, w.url)
		h, err := webhook.New(postgres.New(pool), cfg)
		require.NoError(t, err)
		t.Cleanup(h.Close)
		return &service{h, func(t *testing.T, e webhook.Event) {
			t.Helper()
			require.NoError(t, pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
				_, err := h.Enqueue(t.Context(), tx, e)
				return err
			}))
		}}
	}
	db, err := sql.Open("sqlite", "file:"+w.url+"?_txlock=immediate&_pragma=busy_timeout(5000)")
	require.NoError(t, err)
	t.Cleanup(func() { db.Close() })
	h, err := webhook.New(sqlite.New(db), cfg)
	require.NoError(t, err)
	t.Cleanup(h.Close)
	return &service{h, func(t *testing.T, e webhook.Event) {
		t.Helper()
		tx, err := db.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		defer tx.Rollback()
		_, err = h.Enqueue(t.Context(), tx, e)
		require.NoError(t, err)
		require.NoError(t, tx.Commit())
	}}
}

// dispatch runs a dispatcher until the test ends.
func (s *service) dispatch(t *testing.T) {
	t.Helper()
	d, err := s.hooks.NewDispatcher(webhook.DispatcherConfig{Retry: webhook.RetrySchedule{}, Breaker: webhook.BreakerConfig{ConsecutiveFailures: -1, FailureRatio: -1}})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		assert.NoError(t, <-ended)
	})
}

func TestWrongUsageHasItsStatus(t *testing.T) {
	t.Parallel()
	w := &world{}
	for _, args := range [][]string{
		{"nonsense"},
		{"endpoints"},
		{"endpoints", "nonsense"},
		{"endpoints", "show"},
		{"endpoints", "show", "not-an-id", "-d", "x.db"},
		{"endpoints", "update", "018f0000-0000-7000-8000-000000000000", "-d", "x.db"},
		{"deliveries", "list", "--nonsense"},
		{"deliveries", "list", "--endpoint", "not-an-id", "-d", "x.db"},
		{"deliveries", "list", "--from", "yesterday", "-d", "x.db"},
		{"migrate", "status"},
		{"migrate", "down", "--to", "1", "-d", "x.db"},
		{"migrate", "sql", "--to", "99", "-d", "x.db"},
		{"listen", "--status", "20"},
		{"listen", "--fail", "lots"},
		{"listen", "--secret", "whsec_short"},
		{"bench", "--events", "0"},
		{"endpoints", "list", "--color", "green"},
		{"replay", "nonsense", "-d", "x.db"},
		{"doctor", "--allow", "everything", "-d", "x.db"},
		{"migrate", "status", "-d", "postgres://%zz"},
	} {
		got := w.run(t, args...)
		assert.Equal(t, exitUsage, got.status, "%q: %s%s", args, got.out, got.err)
		assert.Contains(t, got.err, "webhook:", "%q", args)
	}
	none := w.run(t, "endpoints", "list", "-d", filepath.Join(t.TempDir(), "none.db"))
	assert.Equal(t, exitFailed, none.status)
	assert.Contains(t, none.err, "webhook migrate up")
}

func TestAPasswordIsNotPrinted(t *testing.T) {
	t.Parallel()
	const password = "open-sesame-7f3d"
	w := &world{}
	for _, url := range []string{"postgres://u:" + password + "@127.0.0.1:1/x", "postgres://u:" + password + "@127.0.0.1:bad/x"} {
		got := w.run(t, "doctor", "-d", url)
		assert.NotZero(t, got.status)
		assert.NotContains(t, got.out+got.err, password)
	}
}

func TestCompletionIsThereForEveryShell(t *testing.T) {
	t.Parallel()
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		got := (&world{}).run(t, "completion", shell)
		assert.Zero(t, got.status)
		assert.Contains(t, got.out, "webhook")
	}
	got := (&world{}).run(t, "__complete", "migrate", "")
	for _, word := range []string{"up", "down", "status", "sql"} {
		assert.Contains(t, got.out, word+"\t")
	}
	flags := (&world{}).run(t, "__complete", "deliveries", "list", "--state", "")
	for _, word := range deliveryStates {
		assert.Contains(t, flags.out, word+"\n")
	}
}

func TestMigrateUpDownStatusAndSQL(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, w *world) {
		require.Zero(t, w.run(t, "migrate", "up", "--to", "1").status)
		before := w.run(t, "migrate", "status")
		var status migrationStatusJSON
		up := w.run(t, "migrate", "up")
		w.must(t, &status, "migrate", "status")
		again := w.run(t, "migrate", "up")
		script := w.run(t, "migrate", "sql", "--from", "1")
		refused := w.run(t, "migrate", "down", "--to", "0")
		wrong := w.run(t, "migrate", "down", "--to", "99", "--yes")
		down := w.run(t, "migrate", "down", "--to", "0", "--yes")
		gone := w.run(t, "migrate", "status")

		assert.Equal(t, exitProblem, before.status)
		assert.Contains(t, before.out, "Run 'webhook migrate up'")
		assert.Zero(t, up.status)
		assert.Contains(t, up.out, "Migrated from version 1 to")
		assert.Equal(t, status.Latest, status.Current)
		assert.Len(t, status.Migrations, status.Latest)
		assert.NotZero(t, status.Migrations[0].AppliedAt)
		assert.Contains(t, again.out, "Nothing to do")
		assert.Contains(t, script.out, "0002_cluster.up")
		assert.NotContains(t, script.out, "0001_")
		assert.Equal(t, exitUsage, refused.status)
		assert.Equal(t, exitUsage, wrong.status)
		assert.Zero(t, down.status, down.err)
		assert.Equal(t, exitProblem, gone.status)
		assert.Contains(t, gone.out, "none of the library's tables")
		outdated := w.run(t, "endpoints", "list")
		assert.Equal(t, exitFailed, outdated.status)
		assert.Contains(t, outdated.err, "migrate status")
	})
}

func TestMigrateSQLNeedsNoDatabase(t *testing.T) {
	t.Parallel()
	pg := (&world{}).run(t, "migrate", "sql", "-d", "postgres://", "--schema", "hooks")
	lite := (&world{}).run(t, "migrate", "sql", "-d", "sqlite:", "--table-prefix", "wh_")

	assert.Zero(t, pg.status, pg.err)
	assert.Contains(t, pg.out, `CREATE TABLE "hooks".event`)
	assert.Zero(t, lite.status, lite.err)
	assert.Contains(t, lite.out, "CREATE TABLE wh_event")
}

func TestBenchMeasuresAndLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, w *world) {
		w.migrated(t)
		var got benchResult
		w.must(t, &got, "bench", "--events", "200", "--endpoints", "3", "--live", "200ms")

		assert.Positive(t, got.EnqueuedPerSecond)
		assert.Positive(t, got.DeliveredPerSecond)
		assert.Positive(t, got.LiveP99MS)
		assert.GreaterOrEqual(t, got.LiveP99MS, got.LiveP50MS)
		if !isPostgres(w.url) {
			files, err := filepath.Glob(filepath.Join(filepath.Dir(w.url), "*bench*"))
			require.NoError(t, err)
			assert.Empty(t, files)
			return
		}
		var schemas int
		require.NoError(t, pgtest.Open(t, w.url).QueryRow(t.Context(), `SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'webhook_bench%'`).Scan(&schemas))
		assert.Zero(t, schemas)
	})
}

// lines reads what a running command prints, line by line.
func lines(r io.Reader) <-chan string {
	c := make(chan string, 1000)
	go func() {
		defer close(c)
		var line []byte
		var b [1]byte
		for {
			if _, err := r.Read(b[:]); err != nil {
				return
			}
			if b[0] != '\n' {
				line = append(line, b[0])
				continue
			}
			c <- string(line)
			line = nil
		}
	}()
	return c
}
