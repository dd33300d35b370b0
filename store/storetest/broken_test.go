package storetest

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outhook/webhook"
	"github.com/outhook/webhook/webhooktest"
)

// memTx is the transaction of the in-memory store.
type memTx = *webhooktest.Tx

// store is an in-memory store that may be broken: a hook that is set takes the
// place of the method, which it can call through the Store.
type store struct {
	*webhooktest.Store
	vitalsHooks
	payloadHooks

	insertEvents       func(context.Context, memTx, []webhook.EventRecord) ([]webhook.EnqueueResult, error)
	fanOut             func(context.Context, webhook.FanOutParams) (webhook.FanOutResult, error)
	ready              func(context.Context, webhook.ReadyParams) ([]webhook.ReadyLane, error)
	claim              func(context.Context, webhook.ClaimParams) ([]webhook.Claimed, error)
	countBacklog       func(context.Context, []webhook.BacklogRequest) ([]webhook.Backlog, error)
	renew              func(context.Context, webhook.RenewParams) ([]uuid.UUID, error)
	record             func(context.Context, webhook.RecordParams) (webhook.RecordResult, error)
	cancelDeliveries   func(context.Context, webhook.CancelDeliveriesParams) (int, error)
	releaseOrdered     func(context.Context, webhook.ReleaseOrderedParams) (webhook.ReleaseOrderedResult, error)
	markSent           func(context.Context, webhook.MarkSentParams) ([]uuid.UUID, error)
	endUnknown         func(context.Context, webhook.EndUnknownParams) ([]webhook.EndedDeliveries, error)
	endOverdue         func(context.Context, webhook.EndOverdueParams) (webhook.EndOverdueResult, error)
	cancelDelivery     func(context.Context, webhook.CancelDeliveryParams) (bool, error)
	hastenDelivery     func(context.Context, webhook.HastenDeliveryParams) (bool, error)
	logTest            func(context.Context, webhook.LogTestParams) error
	startRun           func(context.Context, webhook.StartRunParams) (uuid.UUID, bool, error)
	createReplayJob    func(context.Context, webhook.ReplayJobRecord) error
	getReplayJob       func(context.Context, webhook.Scope, uuid.UUID) (webhook.ReplayJobRecord, error)
	listReplayJobs     func(context.Context, webhook.ListReplayJobsParams) ([]webhook.ReplayJobRecord, error)
	cancelReplayJob    func(context.Context, webhook.CancelReplayJobParams) (bool, error)
	finishedDeliveries func(context.Context, webhook.FinishedDeliveriesParams) (webhook.ReplayPage, error)
	storedEvents       func(context.Context, webhook.StoredEventsParams) (webhook.ReplayPage, error)
	takeReplayJob      func(context.Context, webhook.TakeReplayJobParams) (webhook.ReplayWork, bool, error)
	advanceReplayJob   func(context.Context, webhook.AdvanceReplayJobParams) (int, bool, error)
	createEndpoint     func(context.Context, webhook.EndpointRecord) (webhook.EndpointRecord, error)
	updateEndpoint     func(context.Context, webhook.EndpointRecord) (webhook.EndpointRecord, error)
	getEndpoint        func(context.Context, webhook.Scope, uuid.UUID) (webhook.EndpointRecord, error)
	listEndpoints      func(context.Context, webhook.ListEndpointsParams) ([]webhook.EndpointRecord, error)
	changedEndpoints   func(context.Context, int64, int) ([]webhook.EndpointRecord, int64, error)
	getEvent           func(context.Context, webhook.Scope, uuid.UUID) (webhook.EventStatus, error)
	getDelivery        func(context.Context, webhook.Scope, uuid.UUID) (webhook.Delivery, error)
	listDeliveries     func(context.Context, webhook.ListDeliveriesParams) (webhook.DeliveryListing, error)
	listEvents         func(context.Context, webhook.ListEventsParams) (webhook.EventListing, error)
	listAttempts       func(context.Context, webhook.Scope, uuid.UUID) ([]webhook.Attempt, error)
	heartbeat          func(context.Context, webhook.HeartbeatParams) ([]webhook.Member, error)
	leave              func(context.Context, uuid.UUID) error
	saveHealth         func(context.Context, []webhook.HealthRecord) error
	loadHealth         func(context.Context, webhook.LoadHealthParams) ([]webhook.HealthRecord, error)
	listOpened         func(context.Context, time.Time) ([]uuid.UUID, error)
	saveSplit          func(context.Context, webhook.HostSplit) error
	listSplits         func(context.Context, time.Time) ([]webhook.HostSplit, error)
	takeProbes         func(context.Context, webhook.TakeProbesParams) (map[uuid.UUID]time.Time, error)
	eraseTenant        func(context.Context, webhook.EraseTenantParams) (webhook.EraseProgress, error)
	now                func(context.Context) (time.Time, error)
	checkSchema        func(context.Context) error
	listCounters       func(context.Context, webhook.ListCountersParams) ([]webhook.DayCounters, error)
	maintain           func(context.Context, webhook.MaintainParams) error
	takeDuty           func(context.Context, webhook.DutyParams) (bool, error)
	notify             func(context.Context, webhook.Signal) error
	listen             func(context.Context, func(), func(webhook.Signal)) error
}

func newStore() *store {
	m := webhooktest.NewStore()
	return &store{
		Store:        m,
		vitalsHooks:  hooksOf(m),
		payloadHooks: payloadHooks{m.GonePayloads, m.ForgetPayloads, m.AbsentEvents},
		insertEvents: m.InsertEvents, fanOut: m.FanOut,
		countBacklog: m.CountBacklog, ready: m.Ready, claim: m.Claim, renew: m.Renew, record: m.Record, cancelDeliveries: m.CancelDeliveries,
		releaseOrdered: m.ReleaseOrdered, markSent: m.MarkSent, endUnknown: m.EndUnknown, endOverdue: m.EndOverdue,
		cancelDelivery: m.CancelDelivery, hastenDelivery: m.HastenDelivery, logTest: m.LogTest, startRun: m.StartRun,
		createReplayJob: m.CreateReplayJob, getReplayJob: m.GetReplayJob, listReplayJobs: m.ListReplayJobs, cancelReplayJob: m.CancelReplayJob,
		finishedDeliveries: m.FinishedDeliveries, storedEvents: m.StoredEvents, takeReplayJob: m.TakeReplayJob, advanceReplayJob: m.AdvanceReplayJob,
		createEndpoint: m.CreateEndpoint, updateEndpoint: m.UpdateEndpoint, getEndpoint: m.GetEndpoint,
		listEndpoints: m.ListEndpoints, changedEndpoints: m.ChangedEndpoints,
		getEvent: m.GetEvent, getDelivery: m.GetDelivery, listDeliveries: m.ListDeliveries, listEvents: m.ListEvents, listAttempts: m.ListAttempts,
		heartbeat: m.Heartbeat, leave: m.Leave, saveHealth: m.SaveHealth, loadHealth: m.LoadHealth, listOpened: m.ListOpened, saveSplit: m.SaveSplit, listSplits: m.ListSplits, takeProbes: m.TakeProbes,
		listCounters: m.ListCounters, maintain: m.Maintain, takeDuty: m.TakeDuty,
		eraseTenant: m.EraseTenant,
		now:         m.Now, checkSchema: m.CheckSchema, notify: m.Notify, listen: m.Listen,
	}
}

func (s *store) InsertEvents(ctx context.Context, tx memTx, events []webhook.EventRecord) ([]webhook.EnqueueResult, error) {
	return s.insertEvents(ctx, tx, events)
}

func (s *store) FanOut(ctx context.Context, p webhook.FanOutParams) (webhook.FanOutResult, error) {
	return s.fanOut(ctx, p)
}

func (s *store) CountBacklog(ctx context.Context, requests []webhook.BacklogRequest) ([]webhook.Backlog, error) {
	return s.countBacklog(ctx, requests)
}

func (s *store) Ready(ctx context.Context, p webhook.ReadyParams) ([]webhook.ReadyLane, error) {
	return s.ready(ctx, p)
}

func (s *store) Claim(ctx context.Context, p webhook.ClaimParams) ([]webhook.Claimed, error) {
	return s.claim(ctx, p)
}

func (s *store) Renew(ctx context.Context, p webhook.RenewParams) ([]uuid.UUID, error) {
	return s.renew(ctx, p)
}

func (s *store) Record(ctx context.Context, p webhook.RecordParams) (webhook.RecordResult, error) {
	return s.record(ctx, p)
}

func (s *store) CancelDeliveries(ctx context.Context, p webhook.CancelDeliveriesParams) (int, error) {
	return s.cancelDeliveries(ctx, p)
}

func (s *store) ReleaseOrdered(ctx context.Context, p webhook.ReleaseOrderedParams) (webhook.ReleaseOrderedResult, error) {
	return s.releaseOrdered(ctx, p)
}

func (s *store) MarkSent(ctx context.Context, p webhook.MarkSentParams) ([]uuid.UUID, error) {
	return s.markSent(ctx, p)
}

func (s *store) EndUnknown(ctx context.Context, p webhook.EndUnknownParams) ([]webhook.EndedDeliveries, error) {
	return s.endUnknown(ctx, p)
}

func (s *store) EndOverdue(ctx context.Context, p webhook.EndOverdueParams) (webhook.EndOverdueResult, error) {
	return s.endOverdue(ctx, p)
}

func (s *store) CancelDelivery(ctx context.Context, p webhook.CancelDeliveryParams) (bool, error) {
	return s.cancelDelivery(ctx, p)
}

func (s *store) HastenDelivery(ctx context.Context, p webhook.HastenDeliveryParams) (bool, error) {
	return s.hastenDelivery(ctx, p)
}

func (s *store) LogTest(ctx context.Context, p webhook.LogTestParams) error { return s.logTest(ctx, p) }

func (s *store) StartRun(ctx context.Context, p webhook.StartRunParams) (uuid.UUID, bool, error) {
	return s.startRun(ctx, p)
}

func (s *store) CreateReplayJob(ctx context.Context, job webhook.ReplayJobRecord) error {
	return s.createReplayJob(ctx, job)
}

func (s *store) GetReplayJob(ctx context.Context, scope webhook.Scope, id uuid.UUID) (webhook.ReplayJobRecord, error) {
	return s.getReplayJob(ctx, scope, id)
}

func (s *store) ListReplayJobs(ctx context.Context, p webhook.ListReplayJobsParams) ([]webhook.ReplayJobRecord, error) {
	return s.listReplayJobs(ctx, p)
}

func (s *store) CancelReplayJob(ctx context.Context, p webhook.CancelReplayJobParams) (bool, error) {
	return s.cancelReplayJob(ctx, p)
}

func (s *store) FinishedDeliveries(ctx context.Context, p webhook.FinishedDeliveriesParams) (webhook.ReplayPage, error) {
	return s.finishedDeliveries(ctx, p)
}

func (s *store) StoredEvents(ctx context.Context, p webhook.StoredEventsParams) (webhook.ReplayPage, error) {
	return s.storedEvents(ctx, p)
}

func (s *store) TakeReplayJob(ctx context.Context, p webhook.TakeReplayJobParams) (webhook.ReplayWork, bool, error) {
	return s.takeReplayJob(ctx, p)
}

func (s *store) AdvanceReplayJob(ctx context.Context, p webhook.AdvanceReplayJobParams) (int, bool, error) {
	return s.advanceReplayJob(ctx, p)
}

func (s *store) CreateEndpoint(ctx context.Context, e webhook.EndpointRecord) (webhook.EndpointRecord, error) {
	return s.createEndpoint(ctx, e)
}

func (s *store) UpdateEndpoint(ctx context.Context, e webhook.EndpointRecord) (webhook.EndpointRecord, error) {
	return s.updateEndpoint(ctx, e)
}

func (s *store) GetEndpoint(ctx context.Context, scope webhook.Scope, id uuid.UUID) (webhook.EndpointRecord, error) {
	return s.getEndpoint(ctx, scope, id)
}

func (s *store) ListEndpoints(ctx context.Context, p webhook.ListEndpointsParams) ([]webhook.EndpointRecord, error) {
	return s.listEndpoints(ctx, p)
}

func (s *store) ChangedEndpoints(ctx context.Context, since int64, limit int) ([]webhook.EndpointRecord, int64, error) {
	return s.changedEndpoints(ctx, since, limit)
}

func (s *store) GetEvent(ctx context.Context, scope webhook.Scope, id uuid.UUID) (webhook.EventStatus, error) {
	return s.getEvent(ctx, scope, id)
}

func (s *store) GetDelivery(ctx context.Context, scope webhook.Scope, id uuid.UUID) (webhook.Delivery, error) {
	return s.getDelivery(ctx, scope, id)
}

func (s *store) ListOpened(ctx context.Context, now time.Time) ([]uuid.UUID, error) {
	return s.listOpened(ctx, now)
}

func (s *store) SaveSplit(ctx context.Context, split webhook.HostSplit) error {
	return s.saveSplit(ctx, split)
}

func (s *store) ListSplits(ctx context.Context, now time.Time) ([]webhook.HostSplit, error) {
	return s.listSplits(ctx, now)
}

func (s *store) Heartbeat(ctx context.Context, p webhook.HeartbeatParams) ([]webhook.Member, error) {
	return s.heartbeat(ctx, p)
}

func (s *store) Leave(ctx context.Context, dispatcher uuid.UUID) error {
	return s.leave(ctx, dispatcher)
}

func (s *store) SaveHealth(ctx context.Context, health []webhook.HealthRecord) error {
	return s.saveHealth(ctx, health)
}

func (s *store) LoadHealth(ctx context.Context, p webhook.LoadHealthParams) ([]webhook.HealthRecord, error) {
	return s.loadHealth(ctx, p)
}

func (s *store) TakeProbes(ctx context.Context, p webhook.TakeProbesParams) (map[uuid.UUID]time.Time, error) {
	return s.takeProbes(ctx, p)
}

func (s *store) ListDeliveries(ctx context.Context, p webhook.ListDeliveriesParams) (webhook.DeliveryListing, error) {
	return s.listDeliveries(ctx, p)
}

func (s *store) ListEvents(ctx context.Context, p webhook.ListEventsParams) (webhook.EventListing, error) {
	return s.listEvents(ctx, p)
}

func (s *store) ListAttempts(ctx context.Context, scope webhook.Scope, id uuid.UUID) ([]webhook.Attempt, error) {
	return s.listAttempts(ctx, scope, id)
}

func (s *store) EraseTenant(ctx context.Context, p webhook.EraseTenantParams) (webhook.EraseProgress, error) {
	return s.eraseTenant(ctx, p)
}

func (s *store) Now(ctx context.Context) (time.Time, error) { return s.now(ctx) }

func (s *store) CheckSchema(ctx context.Context) error { return s.checkSchema(ctx) }

func (s *store) ListCounters(ctx context.Context, p webhook.ListCountersParams) ([]webhook.DayCounters, error) {
	return s.listCounters(ctx, p)
}

func (s *store) Maintain(ctx context.Context, p webhook.MaintainParams) error {
	return s.maintain(ctx, p)
}

func (s *store) TakeDuty(ctx context.Context, p webhook.DutyParams) (bool, error) {
	return s.takeDuty(ctx, p)
}

func (s *store) Notify(ctx context.Context, signal webhook.Signal) error {
	return s.notify(ctx, signal)
}

func (s *store) Listen(ctx context.Context, ready func(), handle func(webhook.Signal)) error {
	return s.listen(ctx, ready, handle)
}

// The store as a database of the suite.

func (s *store) Connect(testing.TB) webhook.Store[memTx]    { return s }
func (s *store) Begin(context.Context) (memTx, error)       { return s.Store.Begin(), nil }
func (s *store) Commit(_ context.Context, tx memTx) error   { return tx.Commit() }
func (s *store) Rollback(_ context.Context, tx memTx) error { return tx.Rollback() }

func openStore(breaking func(*store)) func(testing.TB) Database[memTx] {
	return func(testing.TB) Database[memTx] {
		s := newStore()
		breaking(s)
		return s
	}
}

// broken is a store that does one thing wrong, and the tests that must tell.
type broken struct {
	name     string
	breaking func(*store)
	caughtBy []string
}

func allBroken() []broken {
	return slices.Concat(brokenOutbox(), brokenFanOut(), brokenClaims(), brokenResults(), brokenOrder(), brokenEndings(), brokenActions(), brokenReplays(), brokenEndpoints(), brokenLog(), brokenLists(), brokenCluster(), brokenShedding(), brokenErasure(), brokenPayloads(), brokenVitals(), brokenSystem(), brokenRetention())
}

func TestABrokenStoreFailsTheSuite(t *testing.T) {
	t.Parallel()
	for _, b := range allBroken() {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			require.NotEmpty(t, b.caughtBy)
			h := harnessOn(openStore(b.breaking))
			for _, name := range b.caughtBy {
				complaints := try(t, h, find(t, h, name))
				assert.NotEmpty(t, complaints, "the test %q did not notice", name)
			}
		})
	}
}

// Every test has to have caught something: one that cannot fail checks nothing.
func TestEveryTestOfTheSuiteCatchesABrokenStore(t *testing.T) {
	t.Parallel()
	catches := map[string]bool{}
	for _, b := range allBroken() {
		for _, name := range b.caughtBy {
			catches[name] = true
		}
	}
	for _, name := range names(harnessOn(openStore(func(*store) {}))) {
		assert.True(t, catches[name], "no broken store is caught by %q", name)
	}
}

func TestAStoreThatIsNotBrokenPassesTheSuite(t *testing.T) {
	t.Parallel()
	h := harnessOn(openStore(func(*store) {}))
	h.Timeout = defaultTimeout
	for _, group := range groups(h) {
		for _, tt := range group.tests {
			if tt.open != nil {
				continue // of schemas that a store in memory cannot have
			}
			assert.Empty(t, try(t, h, tt), tt.name)
		}
	}
}

func TestNamesOfTestsAreDifferent(t *testing.T) {
	t.Parallel()
	all := names(harnessOn(openStore(func(*store) {})))
	sorted := slices.Clone(all)
	slices.Sort(sorted)
	assert.Len(t, slices.Compact(sorted), len(all))
}

func TestASingleWriterIsSparedWhatItCannotDo(t *testing.T) {
	t.Parallel()
	h := harnessOn(openStore(func(*store) {}))
	all := names(h)
	h.SingleWriter = true
	assert.Less(t, len(names(h)), len(all))
	assert.Subset(t, all, names(h))
}

// harnessOn is a harness with every option, for stores that may hang.
func harnessOn(open func(testing.TB) Database[memTx]) Harness[memTx] {
	return Harness[memTx]{Open: open, OpenOutdated: open, OpenNewer: open, Notifications: true, Timeout: 500 * time.Millisecond}
}

func names(h Harness[memTx]) []string {
	var all []string
	for _, group := range groups(h) {
		for _, tt := range group.tests {
			all = append(all, tt.name)
		}
	}
	return all
}

func find(t *testing.T, h Harness[memTx], name string) test[memTx] {
	t.Helper()
	for _, group := range groups(h) {
		for _, tt := range group.tests {
			if tt.name == name {
				return tt
			}
		}
	}
	t.Fatalf("the suite has no test named %q", name)
	panic("unreachable")
}

// try runs one test of the suite and returns what it complains of, without
// failing the test that it is called from.
func try(t *testing.T, h Harness[memTx], tt test[memTx]) []string {
	t.Helper()
	p := &probe{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer p.cleanUp()
		defer func() {
			if r := recover(); r != nil {
				p.Errorf("panic: %v", r)
			}
		}()
		runTest(p, h, tt)
	}()
	<-done
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.complaints
}

// probe is a testing.TB that notes failures instead of passing them on. The
// embedded one is there because the interface cannot be implemented otherwise.
type probe struct {
	testing.TB

	mu         sync.Mutex // protects everything below
	complaints []string
	cleanups   []func()
}

func (p *probe) Helper() {}

func (p *probe) Errorf(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.complaints = append(p.complaints, fmt.Sprintf(format, args...))
}

func (p *probe) Error(args ...any) { p.Errorf("%s", fmt.Sprint(args...)) }

func (p *probe) FailNow() {
	p.Errorf("failed")
	runtime.Goexit()
}

func (p *probe) Fatalf(format string, args ...any) {
	p.Errorf(format, args...)
	runtime.Goexit()
}

func (p *probe) Fatal(args ...any) { p.Fatalf("%s", fmt.Sprint(args...)) }

func (p *probe) Cleanup(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cleanups = append(p.cleanups, f)
}

func (p *probe) cleanUp() {
	p.mu.Lock()
	cleanups := p.cleanups
	p.mu.Unlock()
	for _, f := range slices.Backward(cleanups) {
		f()
	}
}
