package webhook

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/outhook/webhook/internal/offswitch"
	"github.com/outhook/webhook/internal/scheduler"
)

// Defaults of [DispatcherConfig] (docs/design.md §2 and §3).
const (
	DefaultGracePeriod            = 15 * time.Second
	DefaultHeartbeatInterval      = 2 * time.Second
	DefaultLease                  = 90 * time.Second
	DefaultMaxInFlight            = 512
	DefaultMaxInFlightPerEndpoint = 20
	DefaultMaxInFlightPerHost     = 20
	DefaultPollInterval           = time.Second
	DefaultRequestTimeout         = 10 * time.Second

	// maxLeaseSlack and leaseSlackShare bound how much of its lease must be left
	// beyond its timeout when a request is written, so that its result can be
	// recorded in time: 5 s, less only where the lease itself is short.
	maxLeaseSlack   = 5 * time.Second
	leaseSlackShare = 6
)

// leaseSlack is how much of a lease must be left beyond a request's timeout when
// the request is written.
func leaseSlack(lease time.Duration) time.Duration {
	return min(maxLeaseSlack, lease/leaseSlackShare)
}

// longestRequest is the longest timeout under a lease: there is time to claim and
// renew before it, and to record after it.
func longestRequest(lease time.Duration) time.Duration {
	return (lease - 2*leaseSlack(lease)) / 2
}

// DispatcherConfig configures [Hooks.NewDispatcher]. Its zero value works. For
// every field zero means the default, and a value that makes no sense is
// refused with an [InvalidError].
type DispatcherConfig struct {
	// AutoDisable says when endpoints are disabled that do nothing but fail.
	AutoDisable AutoDisableConfig

	// Breaker configures the circuits of the endpoints.
	Breaker BreakerConfig

	// GracePeriod is how long Run, once its context has ended, lets requests in
	// flight finish. Default 15 s; negative means not at all.
	GracePeriod time.Duration

	// HeartbeatInterval is how often the dispatcher tells the others on the same
	// database that it is alive. After five missed ones they take its endpoints
	// over. Default 2 s.
	HeartbeatInterval time.Duration

	// Isolation says how far endpoints, hosts and tenants are kept from delaying
	// one another, beyond the caps below.
	Isolation IsolationConfig

	// Lease is how long a delivery belongs to the dispatcher that claimed it,
	// and so how long one that crashed holds it up. Default 90 s; at least twice
	// RequestTimeout plus 10 s, or three times RequestTimeout where that is less.
	// Timeouts of endpoints that are too long for the lease are cut.
	Lease time.Duration

	// MaxInFlight caps the requests in flight of this dispatcher. Default 512.
	MaxInFlight int

	// MaxInFlightPerEndpoint caps the requests in flight to one endpoint that
	// does not say otherwise. Default 20.
	MaxInFlightPerEndpoint int

	// MaxInFlightPerHost caps the requests in flight to one scheme, host and
	// port, shared evenly by its endpoints. Default 20.
	MaxInFlightPerHost int

	// Notifications says who is told what becomes of endpoints.
	Notifications NotificationConfig

	// Observer is told what happens. Nil means nobody is.
	Observer Observer

	// OrderingHold is how long a delivery to an endpoint with an [Ordering] may hold up
	// those after it while it fails. Then the next one passes, marked as having skipped
	// the order; so do those after that, while the first goes on by its retry policy.
	// Default 4 h; negative: until it has ended.
	OrderingHold time.Duration

	// PollInterval is how often the dispatcher looks for events, due deliveries
	// and changed endpoints that it was not told of. Default 1 s.
	PollInterval time.Duration

	// RequestTimeout bounds each attempt as a whole for endpoints that do not say
	// otherwise. Default 10 s; at most 30 s.
	RequestTimeout time.Duration

	// Retention says how long events, deliveries and attempts are kept when nothing
	// waits for them any more. The dispatchers on one database take turns in
	// removing what is older, each by its own policy, so give all of them the same.
	Retention RetentionPolicy

	// Retry decides when deliveries are retried. Default [DefaultRetrySchedule].
	Retry RetryPolicy

	// Serves limits the dispatcher to some tenants. Default: it serves everybody. Each
	// endpoint goes to one of the dispatchers that serve its tenant; the endpoints of a
	// tenant that nobody serves are sent nothing, which is logged and told to an
	// Observer that is an [UnservedObserver]. It needs a store that is a [ClusterStore].
	Serves Serves

	// TenantLimits says what a tenant is allowed, by its plan for example. It is called
	// for the tenants that have endpoints, and again every minute, from one
	// goroutine that must not be kept waiting: answer from memory. Nil, and a
	// panic, mean the zero TenantLimits.
	TenantLimits func(tenant string) TenantLimits
}

// withDefaults returns a copy with the defaults filled in, or an error that
// names the field that makes no sense.
func (c DispatcherConfig) withDefaults() (DispatcherConfig, error) {
	orDuration(&c.GracePeriod, DefaultGracePeriod)
	orDuration(&c.HeartbeatInterval, DefaultHeartbeatInterval)
	orDuration(&c.Lease, DefaultLease)
	orDuration(&c.OrderingHold, DefaultOrderingHold)
	orDuration(&c.PollInterval, DefaultPollInterval)
	orDuration(&c.RequestTimeout, DefaultRequestTimeout)
	orInt(&c.MaxInFlight, DefaultMaxInFlight)
	orInt(&c.MaxInFlightPerEndpoint, DefaultMaxInFlightPerEndpoint)
	orInt(&c.MaxInFlightPerHost, DefaultMaxInFlightPerHost)
	if c.Retry == nil {
		c.Retry = DefaultRetrySchedule()
	}
	if err := validateRetry(c.Retry); err != nil {
		return DispatcherConfig{}, &InvalidError{Field: "DispatcherConfig.Retry", Problem: "is unusable: " + err.Error(), cause: err}
	}
	var err error
	if c.Retention, err = c.Retention.withDefaults(); err != nil {
		return DispatcherConfig{}, err
	}
	var refused *InvalidError
	if c.AutoDisable, refused = c.AutoDisable.withDefaults(); refused != nil {
		return DispatcherConfig{}, refused.in("DispatcherConfig.AutoDisable")
	}
	if err := c.Breaker.validate(); err != nil {
		return DispatcherConfig{}, &InvalidError{Field: "DispatcherConfig.Breaker", Problem: "is unusable: " + err.Error(), cause: err}
	}
	if err := c.Isolation.validate(); err != nil {
		return DispatcherConfig{}, err.in("DispatcherConfig.Isolation")
	}
	bad := func(field, problem string) (DispatcherConfig, error) {
		return DispatcherConfig{}, invalid("DispatcherConfig."+field, problem)
	}
	switch {
	case c.RequestTimeout < 0 || c.RequestTimeout > maxEndpointTimeout:
		return bad("RequestTimeout", fmt.Sprintf("is %v, want more than 0 and at most %v", c.RequestTimeout, maxEndpointTimeout))
	case c.HeartbeatInterval < 0:
		return bad("HeartbeatInterval", "is negative")
	case c.RequestTimeout > longestRequest(c.Lease):
		least := min(3*c.RequestTimeout, 2*(c.RequestTimeout+maxLeaseSlack))
		return bad("Lease", fmt.Sprintf("is %v, want at least %v for a RequestTimeout of %v", c.Lease, least, c.RequestTimeout))
	case c.PollInterval < 0:
		return bad("PollInterval", "is negative")
	case c.MaxInFlight < 0:
		return bad("MaxInFlight", "is negative")
	case c.MaxInFlightPerEndpoint < 0:
		return bad("MaxInFlightPerEndpoint", "is negative")
	case c.MaxInFlightPerHost < 0:
		return bad("MaxInFlightPerHost", "is negative")
	}
	c.GracePeriod = max(c.GracePeriod, 0)
	return c, nil
}

func orDuration(v *time.Duration, byDefault time.Duration) {
	if *v == 0 {
		*v = byDefault
	}
}

func orInt(v *int, byDefault int) {
	if *v == 0 {
		*v = byDefault
	}
}

// Dispatcher fans events out and sends deliveries. Run as many as there are
// processes, on one database; they share the work. Make it with
// [Hooks.NewDispatcher] and run it with [Dispatcher.Run].
type Dispatcher struct {
	core *core
	cfg  DispatcherConfig

	running atomic.Bool
	current atomic.Pointer[run] // nil unless it runs
	clock   *databaseClock

	maxUnrecorded int // of the recorder
}

// NewDispatcher makes a dispatcher. It does no I/O.
func (h *Hooks[Tx]) NewDispatcher(cfg DispatcherConfig) (*Dispatcher, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	if refused := cfg.Notifications.validate(h.core.limits); refused != nil {
		return nil, refused.in("DispatcherConfig.Notifications")
	}
	return &Dispatcher{core: h.core, cfg: cfg, clock: newDatabaseClock(h.core), maxUnrecorded: maxUnrecorded}, nil
}

// errRunning is returned by a second concurrent Run.
var errRunning = errors.New("webhook: the dispatcher is running already")

// Run dispatches until ctx ends, and then returns nil: it takes no new work,
// lets requests in flight finish within the grace period, hands back the rest so
// that other dispatchers take them at once, and records all results. A database
// that is away does not end Run. An error means that nothing was run: the schema
// is not the one that the library needs ([ErrSchemaOutdated], [ErrSchemaNewer]),
// or Run is running already.
func (d *Dispatcher) Run(ctx context.Context) error {
	if !d.running.CompareAndSwap(false, true) {
		return errRunning
	}
	defer d.running.Store(false)
	if err := d.start(ctx); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	r := newRun(d, offswitch.From(ctx))
	d.core.running.add(r)
	defer d.core.running.remove(r)
	d.current.Store(r)
	defer d.current.Store(nil)
	r.do(ctx)
	return nil
}

// start waits for the database and checks what it holds.
func (d *Dispatcher) start(ctx context.Context) error {
	var wait backoff
	for {
		err := d.core.backend.CheckSchema(ctx)
		if err == nil {
			err = d.clock.measure(ctx)
		}
		if err == nil {
			return nil
		}
		if errors.Is(err, ErrSchemaOutdated) || errors.Is(err, ErrSchemaNewer) {
			return fmt.Errorf("start dispatcher: %w", err)
		}
		d.core.log.WarnContext(ctx, "webhook: dispatcher waits for the database", "error", err)
		if !wait.sleep(ctx) {
			return ctx.Err()
		}
	}
}

// run is one execution of Dispatcher.Run and owns all of its goroutines:
//
//	fanOut     outbox → deliveries, told to the loop
//	loop       owns the scheduler: what is ready, what may be claimed
//	attempts   one per request in flight
//	recorder   results → store
//	keeper     renews leases
//	cluster    who else is there, and whose endpoint is whose
//	health     how endpoints fare → store
//	watchers   endpoint changes, reconciliation, replay jobs, signals, clock, upkeep,
//	           what is told of endpoints
//
// Work flows down that list. On the way out the first two stop, attempts end or
// are cut short, and the recorder writes what they left.
type run struct {
	d    *Dispatcher
	core *core
	cfg  *DispatcherConfig
	off  scheduler.Mechanisms // by tests

	registry *registry
	cluster  *cluster
	fanOut   *fanOut
	loop     *loop
	recorder *recorder
	marker   *marker
	leases   *leaseKeeper
	telling  *telling
	answers  answering // of the database; see endUnknown
	health   *healthKeeper

	reconciled chan struct{} // cap 1: wakes the reconciliation
	turns      chan struct{} // cap 1: wakes what gives the turns of ordering keys
	settle     chan struct{} // cap 1: some of abandoned are to be settled
	disabled   chan struct{} // cap 1: an endpoint was disabled
	told       chan struct{} // cap 1: there may be notices to tell

	abandonedMu sync.Mutex             // protects abandoned
	abandoned   map[uuid.UUID]struct{} // endpoints whose pending deliveries are to be cancelled

	polledAt atomic.Int64 // when the database last answered, in nanoseconds of its time

	listening atomic.Bool // signals of others are heard

	attempts     sync.WaitGroup
	attemptCtx   context.Context // ends with the grace period
	stopAttempts context.CancelFunc
}

func newRun(d *Dispatcher, off scheduler.Mechanisms) *run {
	r := &run{d: d, core: d.core, cfg: &d.cfg, off: off}
	r.abandoned = make(map[uuid.UUID]struct{})
	for _, wake := range []*chan struct{}{&r.reconciled, &r.turns, &r.settle, &r.disabled, &r.told} {
		*wake = make(chan struct{}, 1)
	}
	r.registry = newRegistry(d.core, func(changed []*target) {
		r.loop.endpointsChanged(changed)
		if slices.ContainsFunc(changed, (*target).isDisabled) {
			poke(r.disabled)
		}
	})
	r.health = newHealthKeeper(r)
	r.telling = newTelling(r.dispatching())
	r.cluster = newCluster(r)
	r.loop = newLoop(r)
	r.fanOut = newFanOut(r)
	r.leases = newLeaseKeeper(r)
	r.marker = &marker{r: r}
	r.recorder = newRecorder(d.core.backend, d.clock.now, d.core.log, r.recorded)
	r.recorder.limit = d.maxUnrecorded
	return r
}

// do runs everything and returns when all goroutines have ended.
func (r *run) do(ctx context.Context) {
	r.attemptCtx, r.stopAttempts = context.WithCancel(context.WithoutCancel(ctx))
	defer r.stopAttempts()
	// The grace period begins when the host says so, whatever the database does.
	defer context.AfterFunc(ctx, func() { time.AfterFunc(r.cfg.GracePeriod, r.stopAttempts) })()

	// Results are written, and leases kept, until the last attempt has ended.
	flushCtx, stopFlush := context.WithCancel(context.WithoutCancel(ctx))
	defer stopFlush()
	attemptsOver := make(chan struct{})
	var writers sync.WaitGroup
	writers.Go(func() { r.recorder.run(flushCtx, attemptsOver) })
	writers.Go(func() { r.leases.run(flushCtx, attemptsOver) })

	// Before the first endpoint is taken, so that those of others are not.
	if err := r.cluster.beat(ctx); err != nil {
		r.core.log.WarnContext(ctx, "webhook: cannot send a heartbeat", "error", err)
	}
	var workers sync.WaitGroup
	r.cluster.start(ctx, &workers)
	workers.Go(func() { r.fanOut.run(ctx) })
	workers.Go(func() { r.loop.run(ctx) })
	workers.Go(func() { r.health.run(ctx) })
	r.watch(ctx, &workers)
	workers.Wait()
	r.cluster.leave(ctx)

	r.attempts.Wait()
	close(attemptsOver)

	last := time.AfterFunc(r.lastWrites(), stopFlush)
	defer last.Stop()
	writers.Go(func() { r.health.leave(flushCtx) })
	writers.Wait()
}

// lastWrites is how long the database may take, once Run is to end, to take what
// is left: as long as requests may, and time enough in any case.
func (r *run) lastWrites() time.Duration { return max(r.cfg.GracePeriod, 5*time.Second) }

// recorded is called by the recorder with results that are in the database.
func (r *run) recorded(batch []Result, res RecordResult) {
	r.leases.forget(batch)
	r.released(res.Released)
	due := make([]ReadyLane, 0, len(batch))
	for i := range batch {
		if batch[i].State == StatePending && batch[i].Attempt != nil {
			due = append(due, ReadyLane{
				EndpointID: batch[i].Attempt.EndpointID,
				Lane:       batch[i].Lane,
				DueAt:      batch[i].NextAttemptAt,
			})
		}
	}
	if len(due) > 0 {
		r.loop.ready(due)
	}
	for _, id := range res.Lost {
		r.core.log.Warn("webhook: result came after its lease was lost", "delivery", id)
	}
}
