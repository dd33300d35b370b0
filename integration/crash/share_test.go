package crash_test

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outhook/webhook"
	"github.com/outhook/webhook/internal/membership"
)

// byRegion takes the part of a tenant's name before the dash for its region.
func byRegion(tenant string) webhook.TenantLimits {
	region, _, ok := strings.Cut(tenant, "-")
	if !ok {
		return webhook.TenantLimits{}
	}
	return webhook.TenantLimits{Region: region}
}

const (
	hotSlots = 12 // of each process
	hotCap   = 16 // of the host
)

// hotConfig is of processes with fewer slots than one host may take, whose circuits
// open and close within the test.
func hotConfig() webhook.DispatcherConfig {
	cfg := soakConfig()
	cfg.MaxInFlight, cfg.MaxInFlightPerHost = hotSlots, hotCap
	cfg.Breaker.SlowStartSlots, cfg.Breaker.Window = -1, time.Second
	cfg.Isolation.RetryShare = -1 // or what failed would take minutes to be sent again
	return cfg
}

// startKnown starts a process and tells what its dispatcher is called.
func (w *world) startKnown(o orders) (*process, uuid.UUID) {
	w.t.Helper()
	before, err := w.host.heardOf(w.t.Context())
	require.NoError(w.t, err)
	o.Dispatch = true
	p := w.start(o)
	var id uuid.UUID
	w.eventually("it is heard of", func() bool {
		after, err := w.host.heardOf(w.t.Context())
		for one := range after {
			if _, known := before[one]; !known {
				id = one
			}
		}
		return err == nil && id != uuid.Nil
	})
	return p, id
}

// hostOf adds a tenant with an endpoint on a host of its own that, of the dispatchers
// given, one certain one owns.
func (w *world) hostOf(tenant string, owner uuid.UUID, among ...uuid.UUID) *cappedEndpoint {
	w.t.Helper()
	e := &cappedEndpoint{tenant: tenant}
	receiver := httptest.NewUnstartedServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		e.enter(r)
		defer e.leave()
		w.receive(rw, r)
	}))
	for membership.Owner(among, "http://"+receiver.Listener.Addr().String()) != owner {
		other := httptest.NewUnstartedServer(receiver.Config.Handler)
		receiver.Listener.Close()
		receiver = other
	}
	receiver.Start()
	w.t.Cleanup(receiver.Close)
	_, err := w.host.endpoints.Create(w.t.Context(), webhook.EndpointParams{Tenant: tenant, URL: receiver.URL, Types: []string{"*"}})
	require.NoError(w.t, err)
	return e
}

// Two processes send for a region, one for a tenant. Nobody sends for another's
// tenants, not even when somebody dies: then the one that is left of the region does.
func TestProcessesSendForTheTenantsThatTheyServe(t *testing.T) {
	t.Parallel()
	w := newWorld(t, onPostgres, 0)
	europe := orders{Serves: webhook.Serves{Regions: []string{"eu"}}}
	first, firstID := w.startKnown(europe)
	second, secondID := w.startKnown(europe)
	own, ownID := w.startKnown(orders{Serves: webhook.Serves{Tenants: []string{"dedicated"}}})

	all := []uuid.UUID{firstID, secondID, ownID}
	region := all[:2]
	endpoints := []*cappedEndpoint{
		w.hostOf("eu-first", firstID, region...), w.hostOf("eu-second", secondID, region...),
		w.hostOf("dedicated", firstID, all...), // were it not for what they serve
	}
	unserved := w.takeOrderOf(w.hostOf("us-1", ownID, all...).tenant)
	for i, p := range []*process{first, second, own} {
		w.untilSentBy(p, endpoints[i])
	}

	require.NoError(t, first.cmd.Process.Kill())
	first.awaitDeath()
	w.untilSentBy(second, endpoints[0])
	for i := range 3 * len(endpoints) {
		w.arrives(w.takeOrderOf(endpoints[i%len(endpoints)].tenant))
	}
	senders := w.senders()
	assert.NotContains(t, senders["eu-first"], own.number, "it serves another tenant")
	assert.NotContains(t, senders["eu-second"], own.number, "it serves another tenant")
	assert.Equal(t, map[int]bool{own.number: true}, senders["dedicated"], "who serves the tenant")
	_, arrived := w.arrival(unserved)
	assert.False(t, arrived, "nobody serves the tenant")

	last := w.start(orders{Dispatch: true})
	w.arrives(unserved)
	assert.Equal(t, map[int]bool{last.number: true}, w.senders()["us-1"], "who serves everybody")
}

// untilSentBy takes orders until a certain process sends them to their endpoint.
func (w *world) untilSentBy(p *process, e *cappedEndpoint) {
	w.t.Helper()
	for give := time.Now().Add(patience); ; {
		w.arrives(w.takeOrderOf(e.tenant))
		if _, from := e.take(); from[p.number] > 0 {
			return
		}
		require.True(w.t, time.Now().Before(give), "process %d does not send to %s", p.number, e.tenant)
	}
}

// senders returns which processes have sent a tenant's events, by tenant.
func (w *world) senders() map[string]map[int]bool {
	w.t.Helper()
	senders := make(map[string]map[int]bool)
	for _, r := range w.received() {
		page, err := w.host.backend.ListDeliveries(w.t.Context(), webhook.ListDeliveriesParams{
			Scope: webhook.AllTenants(), EventID: r.event, Limit: 1,
		})
		require.NoError(w.t, err)
		require.Len(w.t, page.Deliveries, 1)
		tenant := page.Deliveries[0].Tenant
		if senders[tenant] == nil {
			senders[tenant] = make(map[int]bool)
		}
		senders[tenant][r.sender] = true
	}
	return senders
}

// One host has more to do than a process has slots. Its endpoints are shared out among
// three processes, which keep its cap together, and when it fails one process has them
// all again.
func TestProcessesShareAHotHostUntilItFails(t *testing.T) {
	t.Parallel()
	w := newWorld(t, onPostgres, 0)
	w.tenants = []string{"acme"}
	w.answerWithin(50 * time.Millisecond)
	ids := make([]uuid.UUID, 3)
	processes := make([]*process, len(ids))
	for i := range processes {
		processes[i], ids[i] = w.startKnown(orders{Hot: true})
	}

	var together crowd
	receiver := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		together.enter(r)
		defer together.leave()
		w.receive(rw, r)
	}))
	t.Cleanup(receiver.Close)
	// Each process is to own so many that they take its part of the host's slots.
	owned := map[uuid.UUID]int{}
	endpoints := 0
	for min(owned[ids[0]], owned[ids[1]], owned[ids[2]]) < 3 {
		e, err := w.host.endpoints.Create(t.Context(), webhook.EndpointParams{
			Tenant: "acme", URL: receiver.URL + "/" + strconv.Itoa(endpoints), Types: []string{"*"},
		})
		require.NoError(t, err)
		owned[membership.Owner(ids, receiver.URL+" "+e.ID.String())]++
		endpoints++
	}
	events := w.keepBusy(endpoints)

	splits := w.host.backend.(webhook.SplitStore)
	split := func() webhook.HostSplit {
		list, err := splits.ListSplits(t.Context(), time.Now())
		if err != nil || len(list) == 0 {
			return webhook.HostSplit{}
		}
		return list[0]
	}
	inForce := func() bool {
		s := split()
		return s.Host == receiver.URL && time.Until(s.Until) > 2*quick().HeartbeatInterval
	}
	w.eventually("the host is split", inForce)
	together.take()
	sending := map[int]bool{}
	w.eventually("all send to it", func() bool {
		_, from := together.take()
		for sender := range from {
			sending[sender] = true
		}
		return len(sending) == len(processes)
	})
	w.atRest(len(processes), func() {}, []*crowd{&together}, inForce)
	most, _ := together.take()
	assert.LessOrEqual(t, most, hotCap, "requests at once at the host")

	w.answerWith(func(request) int { return http.StatusInternalServerError })
	w.eventually("it is put together again", func() bool {
		s := split()
		return s.Until.IsZero() && s.NotBefore.After(time.Now())
	})
	w.atRest(len(processes), func() {}, []*crowd{&together})
	_, from := together.take()
	assert.LessOrEqual(t, len(from), 1, "who sends to a host that fails")

	w.answerWith(func(request) int { return http.StatusOK })
	w.answerWithin(0)
	sent := events()
	w.drained()
	page, err := w.host.backend.ListDeliveries(t.Context(), webhook.ListDeliveriesParams{
		Scope: webhook.AllTenants(), State: webhook.StateDead, Limit: 1,
	})
	require.NoError(t, err)
	assert.Empty(t, page.Deliveries)
	t.Logf("%d events to %d endpoints, %v to a process", sent, endpoints, owned)
}

// keepBusy takes orders so that some hundred deliveries wait, until the returned
// function, which tells how many there were, or the end of the test stops it.
func (w *world) keepBusy(endpoints int) (stop func() int) {
	over, ended := make(chan struct{}), make(chan int, 1)
	go func() {
		for n := 0; ; {
			select {
			case <-over:
				ended <- n
				return
			default:
			}
			if n*endpoints-len(w.received()) > 300 {
				pause(w.t.Context(), 5*time.Millisecond)
				continue
			}
			if !assert.NoError(w.t, w.host.order(w.t.Context(), placed(uuid.New(), "acme"), func() bool { return true })) {
				ended <- n
				return
			}
			n++
		}
	}()
	stop = sync.OnceValue(func() int {
		close(over)
		return <-ended
	})
	w.t.Cleanup(func() { stop() })
	return stop
}
