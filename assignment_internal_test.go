package webhook

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestEveryEndpointHasOneOwnerThatServesIt(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	rapid.Check(t, func(rt *rapid.T) {
		word := func(what string) string { return rapid.SampledFrom([]string{"", "eu", "us"}).Draw(rt, what) }
		var members []Member
		for range rapid.IntRange(1, 6).Draw(rt, "dispatchers") {
			var s Serves
			for range rapid.IntRange(0, 2).Draw(rt, "regions") {
				s.Regions = append(s.Regions, word("region"))
			}
			if rapid.IntRange(0, 3).Draw(rt, "own") == 0 {
				s.Tenants = []string{fmt.Sprint("tenant ", rapid.IntRange(0, 3).Draw(rt, "tenant"))}
			}
			members = append(members, Member{ID: uuid.New(), Serves: s.encode()})
		}
		a := newAssignment(members, []HostSplit{
			{Host: "https://split:443", Until: now.Add(time.Minute), NotBefore: now},
			{Host: "https://was:443", Until: now},
			{Host: "https://failed:443", NotBefore: now.Add(time.Minute)},
		}, now)
		regions := map[string]string{"tenant 0": "", "tenant 1": "eu", "tenant 2": "us", "tenant 3": "asia"}
		owners := map[string]uuid.UUID{}
		for tenant, region := range regions {
			for _, host := range []string{"https://a:443", "https://split:443", "https://was:443", "https://failed:443"} {
				for range 4 {
					e := &target{record: EndpointRecord{Tenant: tenant}, host: host, id: uuid.NewString()}
					owner := a.owner(e, region)
					served, sum := 0, 0
					for i, m := range members {
						if a.serves[i].includes(tenant, region) {
							served++
							sum += a.share(m.ID, e, region, 60)
						}
						if m.ID == owner {
							require.True(rt, a.serves[i].includes(tenant, region), "the owner does not serve the tenant")
						}
					}
					require.Equal(rt, served == 0, owner == uuid.Nil, "an endpoint has an owner if anybody serves it")
					if host == "https://split:443" {
						require.Equal(rt, 60*min(1, served), sum, "the parts of the cap")
						continue
					}
					require.Equal(rt, 60*served, sum, "a cap that is not divided")
					if first, ok := owners[host+tenant]; ok {
						require.Equal(rt, first, owner, "the endpoints of a host that is not split stay together")
					}
					owners[host+tenant] = owner
				}
			}
		}
	})
}

func TestASplitHostIsSharedOut(t *testing.T) {
	t.Parallel()
	now := time.Now()
	members := []Member{{ID: uuid.New()}, {ID: uuid.New()}, {ID: uuid.New()}}
	a := newAssignment(members, []HostSplit{{Host: "https://split:443", Until: now.Add(time.Minute)}}, now)
	owners := map[uuid.UUID]int{}
	for range 300 {
		owners[a.owner(&target{host: "https://split:443", id: uuid.NewString()}, "")]++
	}
	require.Len(t, owners, 3)
	for _, n := range owners {
		assert.Greater(t, n, 50)
	}
}

// One that took a host for whole again until its next heartbeat had all of its slots, and
// the others their parts.
func TestASplitThatAClockAheadOfOursRenewedIsInForce(t *testing.T) {
	t.Parallel()
	now := time.Now()
	members := []Member{{ID: uuid.New()}, {ID: uuid.New()}}
	e := &target{host: "https://split:443", id: uuid.NewString()}
	a := newAssignment(members, []HostSplit{{Host: e.host, Until: now.Add(time.Second), NotBefore: now.Add(time.Millisecond)}}, now)
	assert.Equal(t, 8, a.share(members[0].ID, e, "", 16))
	a = newAssignment(members, []HostSplit{{Host: e.host, NotBefore: now.Add(time.Millisecond)}}, now)
	assert.Equal(t, 16, a.share(members[0].ID, e, "", 16), "what failed is whole")
}

func TestOnlyAHighCapMakesHostsSplittable(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		cfg  DispatcherConfig
		want bool
	}{
		{DispatcherConfig{}, false},
		{DispatcherConfig{MaxInFlightPerHost: 257}, true},
		{DispatcherConfig{MaxInFlight: 30, MaxInFlightPerHost: 20}, true},
		{DispatcherConfig{Isolation: IsolationConfig{HostCaps: []HostCap{{Pattern: "a.example", MaxInFlight: 200}}}}, false},
		{DispatcherConfig{Isolation: IsolationConfig{HostCaps: []HostCap{{Pattern: "a.example", MaxInFlight: -1}}}}, true},
	} {
		cfg, err := tc.cfg.withDefaults()
		require.NoError(t, err)
		assert.Equal(t, tc.want, cfg.splittable(), "%+v", tc.cfg.Isolation)
	}
}
