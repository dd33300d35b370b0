package crash_test

import (
	"context"
	"io"
	"net"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outhook/webhook/internal/pgtest"
)

const listeners = `SELECT pid FROM pg_stat_activity
	WHERE datname = current_database() AND pid <> pg_backend_pid() AND query LIKE 'LISTEN%'`

// aPoll is how long it takes at most to find what nobody told of. The machine may be
// busy, or stand still for a while; without a look it would take for ever.
const aPoll = 20 * time.Second

// B09: the listening connection is ended by the server.
func TestB09ALostListenerCostsAtMostOnePoll(t *testing.T) {
	t.Parallel()
	w := newWorld(t, onPostgres, 1)
	pool := pgtest.Open(t, w.url)
	cfg := quick()
	cfg.PollInterval = time.Second
	w.dispatch(w.openHost(options{}), cfg)
	w.arrives(w.takeOrder())
	var before uint32
	w.eventually("somebody listens", func() bool {
		return pool.QueryRow(t.Context(), listeners).Scan(&before) == nil
	})

	_, err := pool.Exec(t.Context(), `SELECT pg_terminate_backend($1)`, before)
	require.NoError(t, err)
	began := time.Now()
	assert.WithinDuration(t, began, w.arrives(w.takeOrder()), aPoll)

	w.eventually("it listens again", func() bool {
		var now uint32
		return pool.QueryRow(t.Context(), listeners).Scan(&now) == nil && now != before
	})
	w.arrives(w.takeOrder())
}

// tunnel passes bytes to a server until it falls silent, without a word.
type tunnel struct {
	listener net.Listener
	target   string

	mu     sync.Mutex // protects silent and conns
	silent bool
	conns  []net.Conn
	work   sync.WaitGroup
}

func newTunnel(t *testing.T, target string) *tunnel {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	n := &tunnel{listener: listener, target: target}
	n.work.Go(n.accept)
	t.Cleanup(func() {
		listener.Close()
		n.mu.Lock()
		for _, c := range n.conns {
			c.Close()
		}
		n.mu.Unlock()
		n.work.Wait()
	})
	return n
}

func (n *tunnel) accept() {
	for {
		from, err := n.listener.Accept()
		if err != nil {
			return
		}
		to, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", n.target)
		if err != nil {
			from.Close()
			continue
		}
		n.mu.Lock()
		n.conns = append(n.conns, from, to)
		n.mu.Unlock()
		n.work.Go(func() { n.pass(from, to) })
		n.work.Go(func() { n.pass(to, from) })
	}
}

func (n *tunnel) pass(from io.Reader, to io.Writer) {
	buf := make([]byte, 32<<10)
	for {
		k, err := from.Read(buf)
		if err != nil {
			return
		}
		n.mu.Lock()
		silent := n.silent
		n.mu.Unlock()
		if silent {
			continue // swallowed: no FIN, no RST
		}
		if _, err := to.Write(buf[:k]); err != nil {
			return
		}
	}
}

func (n *tunnel) setSilent(silent bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.silent = silent
}

func (n *tunnel) opened() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.conns) / 2
}

// through returns the configuration of a connection to url through the tunnel.
func (n *tunnel) through(t *testing.T, url string) *pgx.ConnConfig {
	t.Helper()
	config, err := pgx.ParseConfig(url)
	require.NoError(t, err)
	host, port, err := net.SplitHostPort(n.listener.Addr().String())
	require.NoError(t, err)
	number, err := strconv.ParseUint(port, 10, 16)
	require.NoError(t, err)
	config.Host, config.Port, config.Fallbacks = host, uint16(number), nil
	return config
}

func addressOf(t *testing.T, url string) string {
	t.Helper()
	config, err := pgx.ParseConfig(url)
	require.NoError(t, err)
	return net.JoinHostPort(config.Host, strconv.Itoa(int(config.Port)))
}

// B09: the listening connection is dead and nobody says so.
func TestB09ASilentListenerCostsAtMostOnePoll(t *testing.T) {
	t.Parallel()
	w := newWorld(t, onPostgres, 1)
	wire := newTunnel(t, addressOf(t, w.url))
	cfg := quick()
	cfg.PollInterval = time.Second
	w.dispatch(w.openHost(options{listen: wire.through(t, w.url)}), cfg)
	w.arrives(w.takeOrder())
	w.eventually("somebody listens", func() bool { return wire.opened() == 1 })

	wire.setSilent(true)
	for range 3 {
		began := time.Now()
		assert.WithinDuration(t, began, w.arrives(w.takeOrder()), aPoll)
	}
	assert.Equal(t, 1, wire.opened(), "it is not tried again and again")
}

// A whole database that is away costs time and nothing else: what was in flight
// is remembered, and is not sent again when the database is back.
func TestADatabaseThatComesBackFindsNothingLost(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t, pgtest.Options{Durable: true})
	w := newWorldAt(t, onPostgres, pgtest.On(t, server), 2)
	cfg := quick()
	cfg.RequestTimeout, cfg.Lease = 30*time.Second, 90*time.Second
	release := make(chan struct{})
	w.mu.Lock()
	w.arrived = func(request) { <-release }
	w.mu.Unlock()
	w.dispatch(w.openHost(options{}), cfg)
	for i := range 20 {
		w.takeOrderOf(w.tenants[i%2])
	}
	w.eventually("some are in flight", func() bool { return len(w.received()) >= 4 })

	require.NoError(t, server.Crash())
	w.mu.Lock()
	w.arrived = nil
	w.mu.Unlock()
	close(release) // answered while there is nowhere to write it
	pause(t.Context(), 2*time.Second)
	inFlight := len(w.received())
	assert.Less(t, inFlight, 20, "nothing is claimed")
	require.NoError(t, server.Restart())

	committed := w.drained()
	assert.Len(t, committed, 20)
	assert.Len(t, w.received(), 20, "each was sent once")
	w.arrives(w.takeOrder())
	assert.Len(t, w.drained(), 21)
}

// The same over and over, in the midst of traffic.
func TestADatabaseThatRestartsInTheMidstOfTraffic(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t, pgtest.Options{Durable: true})
	w := newWorldAt(t, onPostgres, pgtest.On(t, server), 2)
	// A claim whose answer was lost with the database holds its deliveries for a lease.
	cfg := quick()
	cfg.RequestTimeout, cfg.Lease = 4*time.Second, 12*time.Second
	for range 2 {
		w.dispatch(w.openHost(options{}), cfg)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var traffic sync.WaitGroup
	for range 2 {
		traffic.Go(func() {
			for ctx.Err() == nil {
				// Errors are the outage's; the ledger in the database says what holds.
				if w.host.order(ctx, placed(uuid.New(), w.tenants[0]), func() bool { return true }) != nil {
					pause(ctx, 20*time.Millisecond)
				}
				pause(ctx, 5*time.Millisecond)
			}
		})
	}
	for range 2 {
		seen := len(w.received())
		w.eventually("deliveries go on", func() bool { return len(w.received()) > seen+10 })
		require.NoError(t, server.Crash())
		require.NoError(t, server.Restart())
	}
	seen := len(w.received())
	w.eventually("deliveries go on", func() bool { return len(w.received()) > seen+10 })
	stop()
	traffic.Wait()

	committed := w.drained()
	sent := make(map[uuid.UUID]int)
	for _, r := range w.received() {
		require.True(t, committed[r.order], "an order that does not exist was sent")
		sent[r.order]++
	}
	for order, n := range sent {
		assert.Equal(t, 1, n, "order %s: no process died, so nothing is sent twice", order)
	}
}
