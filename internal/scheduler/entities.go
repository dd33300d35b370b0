package scheduler

import "time"

// position is where an endpoint stands; see the package comment.
type position uint8

const (
	idle position = iota
	timed
	queued
	claiming
	slots
	gated
	byTenant
	positions
)

// The gates, beside its host's, whose slots an endpoint queues for.
const (
	atSlow uint8 = 1 << iota
	atReplay
	urgent // no gate: it queues for a first attempt that must not wait
)

type endpoint struct {
	spec   EndpointSpec
	tenant *tenant
	host   *host

	// The small ones stand together: apart they would take 40 bytes more, and there are
	// tens of thousands of endpoints.
	pos        position
	why        Wait  // why it is not queued
	offered    uint8 // gates beside its host's that it queues for
	removed    bool
	ready      [lanes]bool // something is due
	again      [lanes]bool // ready was told again while a claim was under way
	hasBacklog bool
	claimsFull bool // the last claim of first attempts left some behind
	failing    bool // the last result was a failure
	seen       CircuitState
	throttles  uint8 // in a row, as far as it matters
	grantIdx   int32 // of the grant of the present Plan, see planned

	// List membership: the tenant's queue, or a gate's waiting list.
	prev, next *endpoint
	list       *epList
	waiting    *waiting
	timer      timer

	// Work.
	firsts due            // what is known of the first attempts that are due
	later  [lanes][]int64 // due times to come, ascending, at most maxLater

	// Slots.
	inFlight      int
	reserved      int // granted or claimed, not started
	reservedSlow  int // of reserved, in the slow lane
	reservedRetry int // of reserved, retries
	foreign       int // live leases of other dispatchers
	replays       int // reserved or in flight in the replay lane
	reservedRepl  int // of reserved, replays
	aged          int // in flight for longer than SlowAfter

	// Pace.
	want         int // size of the next claim
	floorCredit  float64
	replayCredit float64
	latency      float64 // moving average, seconds
	lastSuccess  int64
	lastSign     int64 // last success, or start of the first request after it
	throttled    int64 // held back by a 429 until then
	budget       retryBudget
	bucket       *bucket
	adaptive     *adaptive
	circuit      Circuit
	probe        *Flight  // the probe in flight that counts
	backlog      *backlog // nil: its claims are not full

	served uint64 // number of the last slot granted
	// The grant of the present Plan, so that a second turn adds to it.
	planned uint64
}

type host struct {
	name string
	gate gate
	slow gate
	refs int
	open int // endpoints with a circuit that is not closed
	// contending counts endpoints that would take a slot of the host if there
	// were one: they share its slots evenly.
	contending int
}

// share is how many of the host's slots one contending endpoint may have.
func (h *host) share() int {
	return max(1, (h.gate.max+h.contending-1)/max(1, h.contending))
}

type tenant struct {
	name   string
	refs   int
	pinned bool // set by SetTenant
	weight float64
	bucket *bucket
	queue  epList
	held   epList // endpoints that wait for the tenant's rate
	// claiming counts its endpoints with a grant that is not settled.
	claiming int
	// reserved counts the slots of its endpoints that are granted and not
	// started: each has a token of the tenant's rate set aside.
	reserved int
	timer    timer
	deficit  float64
	served   bool // has got its quantum of this turn
	active   bool // is in the ring
	prev     *tenant
	next     *tenant
}

// ring is the round of tenants that have queued or claiming endpoints.
type ring struct {
	head *tenant
	n    int
}

func (r *ring) add(t *tenant) {
	t.active, t.served, t.deficit = true, false, 0
	r.n++
	if r.head == nil {
		r.head, t.prev, t.next = t, t, t
		return
	}
	tail := r.head.prev
	tail.next, t.prev = t, tail
	t.next, r.head.prev = r.head, t
}

func (r *ring) remove(t *tenant) {
	t.active = false
	r.n--
	if r.n == 0 {
		r.head, t.prev, t.next = nil, nil, nil
		return
	}
	if r.head == t {
		r.head = t.next
	}
	t.prev.next, t.next.prev = t.next, t.prev
	t.prev, t.next = nil, nil
}

// turn moves on to the next tenant.
func (r *ring) turn() {
	r.head.served = false
	r.head = r.head.next
}

// Flight is a request in flight. It is opaque to the caller.
type Flight struct {
	ep      *endpoint
	host    *host
	started int64
	number  int
	lane    Lane
	probe   bool
	test    bool
	slow    bool // counts in the slow lane
	aged    bool
	done    bool
	prev    *Flight
	next    *Flight
}

// flights lists the requests in flight that are not slow yet, oldest first, so
// that finding those that have become slow looks at nothing else.
type flights struct{ head, tail *Flight }

func (l *flights) pushBack(f *Flight) {
	f.prev = l.tail
	if l.tail == nil {
		l.head = f
	} else {
		l.tail.next = f
	}
	l.tail = f
}

func (l *flights) remove(f *Flight) {
	if f.prev == nil {
		l.head = f.next
	} else {
		f.prev.next = f.next
	}
	if f.next == nil {
		l.tail = f.prev
	} else {
		f.next.prev = f.prev
	}
	f.prev, f.next = nil, nil
}

func nanos(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

func instant(n int64) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return time.Unix(0, n)
}
