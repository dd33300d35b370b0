package crash_test

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outhook/webhook"
	"github.com/outhook/webhook/internal/pgtest"
)

// patience is for what must happen, on a machine that does much else.
const patience = 60 * time.Second

// world is a database, receivers, and the processes between them.
type world struct {
	t       *testing.T
	kind    string
	url     string
	host    *host // the test's own look at the database
	tenants []string
	started int

	mu        sync.Mutex    // protects everything below
	latency   time.Duration // of the receivers
	requests  []request
	open      map[uuid.UUID]int // requests that wait for their answer, by event
	most      int               // of open, at any time
	inAll     int               // requests that wait for their answer
	mostInAll int               // of inAll, at any time
	takeovers int
	answer    func(request) int // the status of the answer
	arrived   func(request)     // called before the answer; may be nil
}

// request is what a receiver got.
type request struct {
	at     time.Time
	event  uuid.UUID
	order  uuid.UUID
	sender int
	signed time.Time
}

// newWorld makes a database of a kind, with one endpoint and receiver per tenant.
func newWorld(t *testing.T, kind string, tenants int) *world {
	t.Helper()
	url := filepath.Join(t.TempDir(), "app.db")
	if kind == onPostgres {
		url = pgtest.NewFrom(t, migrated)
	}
	return newWorldAt(t, kind, url, tenants)
}

// migrated is what worlds on PostgreSQL begin with.
var migrated = pgtest.Template{Name: "crash", Prepare: func(ctx context.Context, url string) error {
	h, err := openPostgres(ctx, url, options{})
	if err == nil {
		h.close()
	}
	return err
}}

func newWorldAt(t *testing.T, kind, url string, tenants int) *world {
	t.Helper()
	w := &world{
		t: t, kind: kind, url: url, latency: 10 * time.Millisecond,
		open:   make(map[uuid.UUID]int),
		answer: func(request) int { return http.StatusOK },
	}
	h := w.openHost(options{})
	w.host = h
	for i := range tenants {
		tenant := "tenant" + strconv.Itoa(i)
		receiver := httptest.NewServer(http.HandlerFunc(w.receive))
		t.Cleanup(receiver.Close)
		_, err := h.endpoints.Create(t.Context(), webhook.EndpointParams{
			Tenant: tenant, URL: receiver.URL, Types: []string{"*"},
		})
		require.NoError(t, err)
		w.tenants = append(w.tenants, tenant)
	}
	return w
}

// openHost opens the database as one more host in the test's own process.
func (w *world) openHost(o options) *host {
	w.t.Helper()
	h, err := openHost(w.t.Context(), w.kind, w.url, o)
	require.NoError(w.t, err)
	w.t.Cleanup(h.close)
	return h
}

// dispatch runs a dispatcher in the test's own process until the returned
// function, or the end of the test, stops it.
func (w *world) dispatch(h *host, cfg webhook.DispatcherConfig) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- h.run(ctx, cfg) }()
	stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-ended:
			assert.NoError(w.t, err)
		case <-time.After(patience):
			assert.Fail(w.t, "the dispatcher does not stop")
		}
	})
	w.t.Cleanup(stop)
	return stop
}

func (w *world) receive(rw http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var payload struct {
		Order uuid.UUID `json:"order"`
	}
	if err != nil || json.Unmarshal(body, &payload) != nil {
		return // the sender died while it wrote
	}
	sender, _ := strconv.Atoi(r.Header.Get(senderHeader))
	signed, _ := strconv.ParseInt(r.Header.Get("webhook-timestamp"), 10, 64)
	got := request{
		at: time.Now(), event: uuid.MustParse(r.Header.Get("webhook-id")),
		order: payload.Order, sender: sender, signed: time.Unix(signed, 0),
	}
	w.mu.Lock()
	w.requests = append(w.requests, got)
	w.open[got.event]++
	w.most = max(w.most, w.open[got.event])
	w.inAll++
	w.mostInAll = max(w.mostInAll, w.inAll)
	status, arrived, latency := w.answer(got), w.arrived, w.latency
	w.mu.Unlock()
	if arrived != nil {
		arrived(got)
	}
	pause(r.Context(), latency)
	w.mu.Lock()
	w.open[got.event]--
	w.inAll--
	w.mu.Unlock()
	rw.WriteHeader(status)
}

func (w *world) received() []request {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]request(nil), w.requests...)
}

// receivedFrom returns the events that a process sent, with how often.
func (w *world) receivedFrom(sender int) map[uuid.UUID]int {
	events := make(map[uuid.UUID]int)
	for _, r := range w.received() {
		if r.sender == sender {
			events[r.event]++
		}
	}
	return events
}

// answerWith decides the status of answers; it is called for one at a time.
func (w *world) answerWith(answer func(request) int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.answer = answer
}

func (w *world) answerWithin(latency time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.latency = latency
}

func (w *world) takeoversSoFar() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.takeovers
}

// takeOrder takes an order in the test's own process, which has no dispatcher.
func (w *world) takeOrder() uuid.UUID {
	w.t.Helper()
	return w.takeOrderOf(w.tenants[0])
}

func (w *world) takeOrderOf(tenant string) uuid.UUID {
	w.t.Helper()
	id := uuid.New()
	require.NoError(w.t, w.host.order(w.t.Context(), placed(id, tenant), func() bool { return true }))
	return id
}

// arrival returns when an order's event first arrived; false when it has not.
func (w *world) arrival(order uuid.UUID) (time.Time, bool) {
	for _, r := range w.received() {
		if r.order == order {
			return r.at, true
		}
	}
	return time.Time{}, false
}

// arrives waits for an order's event.
func (w *world) arrives(order uuid.UUID) time.Time {
	w.t.Helper()
	var at time.Time
	w.eventually("the order's event arrives", func() (ok bool) {
		at, ok = w.arrival(order)
		return ok
	})
	return at
}

// eventually waits for a condition on real processes.
func (w *world) eventually(what string, condition func() bool) {
	w.t.Helper()
	require.Eventually(w.t, condition, patience, 5*time.Millisecond, what)
}

// process is one run of this program as a host.
type process struct {
	w      *world
	number int
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	ended  chan struct{}

	mu   sync.Mutex // protects what it said
	err  bytes.Buffer
	hits []string
	said string // of its footprint
}

// start starts a process.
func (w *world) start(o orders) *process {
	w.t.Helper()
	w.started++
	o.Kind, o.URL, o.Number = w.kind, w.url, w.started
	raw, err := json.Marshal(o)
	require.NoError(w.t, err)
	program, err := os.Executable()
	require.NoError(w.t, err)
	p := &process{w: w, number: w.started, cmd: exec.Command(program), ended: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), childEnv+"="+string(raw))
	p.cmd.Stderr = p
	p.stdin, err = p.cmd.StdinPipe()
	require.NoError(w.t, err)
	out, err := p.cmd.StdoutPipe()
	require.NoError(w.t, err)
	require.NoError(w.t, p.cmd.Start())
	go p.listen(out)
	w.t.Cleanup(func() {
		p.kill()
		if said := p.complaints(); said != "" && w.t.Failed() {
			w.t.Logf("process %d: %s", p.number, said)
		}
	})
	return p
}

// listen takes in what the process says, until it ends.
func (p *process) listen(out io.Reader) {
	defer close(p.ended)
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		word, rest, _ := strings.Cut(lines.Text(), " ")
		switch word {
		case "hit":
			p.mu.Lock()
			p.hits = append(p.hits, rest)
			p.mu.Unlock()
		case "footprint":
			p.mu.Lock()
			p.said = rest
			p.mu.Unlock()
		case "takeover":
			n, _ := strconv.Atoi(rest)
			p.w.mu.Lock()
			p.w.takeovers += n
			p.w.mu.Unlock()
		}
	}
	_ = p.cmd.Wait()
}

// Write takes in what the process complains of.
func (p *process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err.Write(b)
}

func (p *process) complaints() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err.String()
}

// hit returns the ids that the process had in its hands at its point.
func (p *process) hit() ([]uuid.UUID, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.hits) == 0 {
		return nil, false
	}
	var ids []uuid.UUID
	for id := range strings.SplitSeq(p.hits[0], ",") {
		ids = append(ids, uuid.MustParse(id))
	}
	return ids, true
}

// awaitHit waits for the process at its point.
func (p *process) awaitHit() []uuid.UUID {
	p.w.t.Helper()
	p.w.eventually("the process comes to its point", func() bool {
		_, ok := p.hit()
		return ok || p.over()
	})
	ids, ok := p.hit()
	require.True(p.w.t, ok, "the process ended before its point: %s", p.complaints())
	return ids
}

func (p *process) over() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// awaitDeath waits for the process to die of SIGKILL.
func (p *process) awaitDeath() {
	p.w.t.Helper()
	select {
	case <-p.ended:
	case <-time.After(patience):
		require.FailNow(p.w.t, "the process lives")
	}
	status, _ := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	require.True(p.w.t, status.Signaled() && status.Signal() == syscall.SIGKILL,
		"the process ended otherwise: %v: %s", p.cmd.ProcessState, p.complaints())
}

func (p *process) kill() {
	if !p.over() {
		_ = p.cmd.Process.Kill()
	}
	<-p.ended
}

func (p *process) tell(order string) {
	p.w.t.Helper()
	_, err := fmt.Fprintln(p.stdin, order)
	require.NoError(p.w.t, err)
}

// footprint returns what the process uses after a garbage collection.
func (p *process) footprint() (goroutines, heap int) {
	p.w.t.Helper()
	p.tell("footprint")
	p.w.eventually("the process tells what it uses", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		n, err := fmt.Sscan(p.said, &goroutines, &heap)
		return err == nil && n == 2
	})
	return goroutines, heap
}

// stop lets the process end in order.
func (p *process) stop() {
	p.w.t.Helper()
	p.tell("stop")
	select {
	case <-p.ended:
	case <-time.After(patience):
		require.FailNow(p.w.t, "the process does not stop")
	}
	require.True(p.w.t, p.cmd.ProcessState.Success(), "%v: %s", p.cmd.ProcessState, p.complaints())
}

// freeze stops the process as it stands; thaw lets it go on. A process that
// stands still in the middle of a write would keep everybody else from an SQLite
// file: such a moment is not chosen.
func (p *process) freeze() {
	p.w.t.Helper()
	for {
		p.signalStop()
		if p.w.kind == onPostgres || writable(p.w.url) {
			return
		}
		p.thaw()
	}
}

// writable reports whether nobody holds the lock of an SQLite file.
func writable(file string) bool {
	db, err := sql.Open("sqlite", "file:"+file+"?_txlock=immediate&_pragma=busy_timeout(500)")
	if err != nil {
		return false
	}
	defer db.Close()
	tx, err := db.BeginTx(context.Background(), nil)
	if err != nil {
		return false
	}
	return tx.Rollback() == nil
}

func (p *process) signalStop() {
	p.w.t.Helper()
	require.NoError(p.w.t, p.cmd.Process.Signal(syscall.SIGSTOP))
	p.w.eventually("the process stands still", func() bool {
		stat, err := os.ReadFile("/proc/" + strconv.Itoa(p.cmd.Process.Pid) + "/stat")
		_, rest, _ := strings.Cut(string(stat), ") ")
		return err == nil && strings.HasPrefix(rest, "T")
	})
}

func (p *process) thaw() {
	p.w.t.Helper()
	require.NoError(p.w.t, p.cmd.Process.Signal(syscall.SIGCONT))
}

// drained waits until every committed order was received and nothing is left,
// and returns the committed orders.
func (w *world) drained() map[uuid.UUID]bool {
	w.t.Helper()
	var committed map[uuid.UUID]bool
	defer func() {
		if w.t.Failed() {
			w.describeLeft()
		}
	}()
	require.EventuallyWithT(w.t, func(c *assert.CollectT) {
		var err error
		committed, err = w.host.orders(w.t.Context())
		require.NoError(c, err)
		missing := make(map[uuid.UUID]bool, len(committed))
		for id := range committed {
			missing[id] = true
		}
		for _, r := range w.received() {
			delete(missing, r.order)
		}
		untold := len(missing)
		require.Zero(c, untold, "committed orders that nobody was told of")
		left, err := w.host.unfinished(w.t.Context())
		require.NoError(c, err)
		stuck := len(left)
		require.Zero(c, stuck, "deliveries that are stuck")
	}, patience, 50*time.Millisecond)
	return committed
}

// describeLeft tells what the database holds that is not finished.
func (w *world) describeLeft() {
	left, err := w.host.unfinished(context.WithoutCancel(w.t.Context()))
	counts := make(map[string]int)
	for i := range left {
		d := &left[i]
		counts[fmt.Sprintf("%s %s after %d attempts, last %s", d.Tenant, d.State, d.Attempts, d.LastClass)]++
	}
	w.t.Log("unfinished:", counts, err)
}

// failures is how many attempts of an event the log calls failed: on a machine that is
// busy enough, an answer comes too late.
func (w *world) failures(ctx context.Context, event uuid.UUID) (n int) {
	w.t.Helper()
	_, all := w.deliveries(ctx, event)
	for _, attempts := range all {
		for i := range attempts {
			if attempts[i].Class != webhook.ClassNone {
				n++
			}
		}
	}
	return n
}

// eachOnce asserts that so many events were sent, each once, and again only if that
// failed: on a machine that stands still a request may time out.
func (w *world) eachOnce(events int) {
	w.t.Helper()
	times := map[uuid.UUID]int{}
	for _, r := range w.received() {
		times[r.event]++
	}
	assert.Len(w.t, times, events)
	for event, n := range times {
		assert.LessOrEqual(w.t, n, 1+w.failures(w.t.Context(), event), "requests for event %s", event)
	}
}

// deliveries returns an event's deliveries and their attempts.
func (w *world) deliveries(ctx context.Context, event uuid.UUID) (d []webhook.Delivery, attempts [][]webhook.Attempt) {
	w.t.Helper()
	page, err := w.host.backend.ListDeliveries(ctx, webhook.ListDeliveriesParams{
		Scope: webhook.AllTenants(), EventID: event, Limit: 10,
	})
	require.NoError(w.t, err)
	d = page.Deliveries
	for i := range d {
		list, err := w.host.backend.ListAttempts(ctx, webhook.AllTenants(), d[i].ID)
		require.NoError(w.t, err)
		attempts = append(attempts, list)
	}
	return d, attempts
}
