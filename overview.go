package webhook

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/outhook/webhook/internal/vitals"
)

const (
	// overviewEndpoints bounds how many endpoints of a tenant an overview looks at.
	overviewEndpoints = 5000

	// overviewPage is how many it reads at a time.
	overviewPage = 500

	// aliveFor is how long a dispatcher is shown after it last stored what it does.
	aliveFor = 30 * time.Second
)

// OverviewParams says what [Health.Overview] is about.
type OverviewParams struct {
	// Scope is one tenant or everything. The zero Scope is the tenant with the empty
	// name.
	Scope Scope
	// For is how far back the buckets go. Zero means an hour, in buckets of 5 minutes;
	// more than an hour means 24, in buckets of one hour.
	For time.Duration
}

// HealthOverview is how a tenant, or everything, fares.
type HealthOverview struct {
	// At is the time of the overview.
	At        time.Time
	Endpoints EndpointCounts

	// OldestReadyAge is how long the delivery has been due that has waited longest,
	// of endpoints that are active, and the other two are the same for those that are
	// healthy and for the others. Zero when none waits.
	OldestReadyAge, OldestReadyAgeHealthy, OldestReadyAgeOthers time.Duration

	// Total sums the Buckets, which are in the order of their times and without gaps.
	Total   ActivityCounts
	Buckets []ActivityBucket

	// Partial is true of a tenant with more than 5,000 endpoints, of which only the
	// first are in the ages and the buckets.
	Partial bool

	// Dispatchers are those that were alive half a minute ago; in an overview of
	// everything only.
	Dispatchers []DispatcherStatus
}

// DispatcherStatus is what a dispatcher last said of itself.
type DispatcherStatus struct {
	ID uuid.UUID
	// SeenAt is when it said so.
	SeenAt time.Time
	DispatcherGauges
}

// DispatcherGauges are what a dispatcher has at hand.
type DispatcherGauges struct {
	// Endpoints are those that it sends to, of Tenants many.
	Endpoints int `json:"endpoints,omitzero"`
	Tenants   int `json:"tenants,omitzero"`
	// InFlight counts its requests in flight, of MaxInFlight at most, and Slow those of
	// them in the slow lane.
	InFlight    int `json:"in_flight,omitzero"`
	MaxInFlight int `json:"max_in_flight,omitzero"`
	Slow        int `json:"slow,omitzero"`
	// Ready counts endpoints that may be sent to now, Waiting those that wait for a
	// slot or a rate, and Parked those that wait for a time.
	Ready   int `json:"ready,omitzero"`
	Waiting int `json:"waiting,omitzero"`
	Parked  int `json:"parked,omitzero"`
	// CircuitsOpen and CircuitsHalfOpen count endpoints by their circuit.
	CircuitsOpen     int `json:"circuits_open,omitzero"`
	CircuitsHalfOpen int `json:"circuits_half_open,omitzero"`
	// Unrecorded counts results that wait for the database.
	Unrecorded int `json:"unrecorded,omitzero"`
}

// activity is the JSON document in ActivityRecord.Data.
type activity struct {
	SeenAt time.Time      `json:"seen_at"`
	Left   bool           `json:"left,omitzero"` // the dispatcher has stopped
	Counts vitals.Buckets `json:"counts"`        // one bucket
	// The oldest due deliveries when it last looked.
	OldestHealthy time.Time        `json:"oldest_healthy,omitzero"`
	OldestOther   time.Time        `json:"oldest_other,omitzero"`
	Gauges        DispatcherGauges `json:"gauges,omitzero"`
}

// Overview tells how a tenant, or everything, fares.
func (s *Health) Overview(ctx context.Context, p OverviewParams) (HealthOverview, error) {
	now, err := s.core.now(ctx)
	if err != nil {
		return HealthOverview{}, err
	}
	o := HealthOverview{At: now}
	if o.Endpoints, err = s.core.backend.CountEndpoints(ctx, p.Scope); err != nil {
		return HealthOverview{}, fmt.Errorf("count endpoints: %w", err)
	}
	series := newSeries(now, p.For)
	if _, limited := p.Scope.Tenant(); limited {
		err = s.overviewOfTenant(ctx, p.Scope, &o, series)
	} else {
		err = s.overviewOfAll(ctx, &o, series)
	}
	if err != nil {
		return HealthOverview{}, err
	}
	o.OldestReadyAge = max(o.OldestReadyAgeHealthy, o.OldestReadyAgeOthers)
	var total vitals.Counts
	for i := range series.buckets {
		b := &series.buckets[i]
		total.Add(&b.Counts)
		o.Buckets = append(o.Buckets, ActivityBucket{Start: b.At, Length: series.length, ActivityCounts: countsOf(b.Counts)})
	}
	o.Total = countsOf(total)
	return o, nil
}

// series gathers counts in buckets of one length.
type series struct {
	length  time.Duration
	buckets vitals.Buckets
}

func newSeries(now time.Time, long time.Duration) *series {
	s := &series{length: vitals.Fine}
	n := int(time.Hour / vitals.Fine)
	if long > time.Hour {
		s.length, n = vitals.Coarse, 24
	}
	last := now.Truncate(s.length)
	for i := n; i >= 0; i-- {
		s.buckets = append(s.buckets, vitals.Bucket{At: last.Add(-time.Duration(i) * s.length)})
	}
	return s
}

func (s *series) start() time.Time { return s.buckets[0].At }

func (s *series) add(b *vitals.Bucket) {
	i := int(b.At.Sub(s.start()) / s.length)
	if !b.At.Before(s.start()) && i < len(s.buckets) {
		s.buckets[i].Add(&b.Counts)
	}
}

// overviewOfAll adds up what dispatchers did.
func (s *Health) overviewOfAll(ctx context.Context, o *HealthOverview, sum *series) error {
	records, err := s.core.backend.ListActivity(ctx, sum.start(), o.At.Add(vitals.Fine))
	if err != nil {
		return fmt.Errorf("list what dispatchers did: %w", err)
	}
	latest := make(map[uuid.UUID]activity)
	for i := range records {
		var a activity
		if json.Unmarshal(records[i].Data, &a) != nil {
			continue // only a hand in the database can make it unreadable
		}
		for k := range a.Counts {
			sum.add(&a.Counts[k])
		}
		if !a.SeenAt.Before(latest[records[i].Dispatcher].SeenAt) {
			latest[records[i].Dispatcher] = a
		}
	}
	newest := time.Time{} // everybody looks at all that is due: the latest one is right
	for id, a := range latest {
		if a.Left || o.At.Sub(a.SeenAt) > aliveFor {
			continue
		}
		o.Dispatchers = append(o.Dispatchers, DispatcherStatus{ID: id, SeenAt: a.SeenAt, DispatcherGauges: a.Gauges})
		if a.SeenAt.After(newest) {
			newest = a.SeenAt
			o.OldestReadyAgeHealthy, o.OldestReadyAgeOthers = age(o.At, a.OldestHealthy), age(o.At, a.OldestOther)
		}
	}
	slices.SortFunc(o.Dispatchers, func(a, b DispatcherStatus) int { return slices.Compare(a.ID[:], b.ID[:]) })
	return nil
}

func age(now, since time.Time) time.Duration {
	if since.IsZero() {
		return 0
	}
	return max(now.Sub(since), 0)
}

// overviewOfTenant adds up how the tenant's endpoints fare.
func (s *Health) overviewOfTenant(ctx context.Context, scope Scope, o *HealthOverview, sum *series) error {
	var after uuid.UUID
	for looked := 0; ; looked += overviewPage {
		recs, err := s.core.backend.ListEndpoints(ctx, ListEndpointsParams{Scope: scope, After: after, Limit: overviewPage})
		if err != nil {
			return fmt.Errorf("list endpoints: %w", err)
		}
		if len(recs) == 0 {
			return nil
		}
		if looked >= overviewEndpoints {
			o.Partial = true
			return nil
		}
		after = recs[len(recs)-1].ID
		if err := s.addEndpoints(ctx, recs, o, sum); err != nil {
			return err
		}
	}
}

func (s *Health) addEndpoints(ctx context.Context, recs []EndpointRecord, o *HealthOverview, sum *series) error {
	ids := make([]uuid.UUID, len(recs))
	active := make(map[uuid.UUID]bool, len(recs))
	for i := range recs {
		ids[i] = recs[i].ID
		active[ids[i]] = recs[i].State == EndpointActive
	}
	rows, err := s.core.backend.ReadHealth(ctx, ReadHealthParams{Now: o.At, Endpoints: ids})
	if err != nil {
		return fmt.Errorf("read the health of %d endpoints: %w", len(ids), err)
	}
	for i := range rows {
		var v vitals.State
		if json.Unmarshal(rows[i].Vitals, &v) != nil {
			v = vitals.State{}
		}
		buckets := v.Fine
		if sum.length == vitals.Coarse {
			buckets = v.Coarse
		}
		for k := range buckets {
			sum.add(&buckets[k])
		}
		if !active[rows[i].EndpointID] {
			continue
		}
		oldest := &o.OldestReadyAgeOthers
		if v.Healthy() {
			oldest = &o.OldestReadyAgeHealthy
		}
		*oldest = max(*oldest, age(o.At, rows[i].OldestDueAt))
	}
	return nil
}
