package webhook

import (
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/outhook/webhook/internal/membership"
)

// Serves limits a dispatcher to some tenants: for capacity of their own, or because
// their data must be sent from where they are. The zero value serves everybody.
//
// It limits sending. Events are fanned out, replay jobs carried out and old rows removed
// by any dispatcher on the database, since those only write to it. Where dispatchers
// that serve different tenants send to one host, each group of them keeps the host's cap
// by itself.
type Serves struct {
	// Regions are those of the tenants that are served, as [TenantLimits.Region] names
	// them; "" stands for the tenants without one.
	Regions []string `json:"regions,omitempty"`
	// Tenants are served whatever their region.
	Tenants []string `json:"tenants,omitempty"`
}

func (s *Serves) everybody() bool { return len(s.Regions) == 0 && len(s.Tenants) == 0 }

func (s *Serves) includes(tenant, region string) bool {
	return s.everybody() || slices.Contains(s.Tenants, tenant) || slices.Contains(s.Regions, region)
}

// encode writes it for the other dispatchers; "" for one that serves everybody.
func (s *Serves) encode() string {
	if s.everybody() {
		return ""
	}
	raw, err := json.Marshal(s)
	if err != nil { // cannot be: words
		return ""
	}
	return string(raw)
}

// UnservedObserver is an [Observer] that is also told of tenants whose endpoints no
// dispatcher serves: see [DispatcherConfig.Serves].
type UnservedObserver interface {
	// TenantUnserved is called when a tenant with endpoints has had no dispatcher for
	// some heartbeats, and then every minute or so as long as that lasts. Its
	// deliveries wait meanwhile.
	TenantUnserved(tenant string)
}

// assignment says whose an endpoint is. Every dispatcher comes to the same one from
// the same members and splits. It is immutable.
type assignment struct {
	members []uuid.UUID // in ascending order
	serves  []Serves    // of each member
	limited bool        // some serve not everybody
	splits  map[string]HostSplit
	split   map[string]bool // those of splits that are in force
}

func newAssignment(members []Member, splits []HostSplit, now time.Time) *assignment {
	a := &assignment{splits: make(map[string]HostSplit, len(splits)), split: make(map[string]bool)}
	for _, m := range members {
		var s Serves
		// What cannot be read was written by another version: it serves as it always did.
		_ = json.Unmarshal([]byte(m.Serves), &s)
		a.members, a.serves = append(a.members, m.ID), append(a.serves, s)
		a.limited = a.limited || !s.everybody()
	}
	for _, s := range splits {
		a.splits[s.Host] = s
		// What failed has no Until. NotBefore is else when the split was last renewed, by
		// the clock of whoever renewed it, and that may be ahead of ours.
		if s.Until.After(now) {
			a.split[s.Host] = true
		}
	}
	return a
}

// sameAs reports whether both assign everything alike.
func (a *assignment) sameAs(b *assignment) bool {
	return slices.Equal(a.members, b.members) && maps.Equal(a.split, b.split) &&
		slices.EqualFunc(a.serves, b.serves, func(x, y Serves) bool {
			return slices.Equal(x.Regions, y.Regions) && slices.Equal(x.Tenants, y.Tenants)
		})
}

// candidates are the dispatchers that serve a tenant.
func (a *assignment) candidates(tenant, region string) []uuid.UUID {
	if !a.limited {
		return a.members
	}
	var some []uuid.UUID
	for i, id := range a.members {
		if a.serves[i].includes(tenant, region) {
			some = append(some, id)
		}
	}
	return some
}

// owner returns whose an endpoint is; the zero id if nobody serves its tenant. The
// endpoints of a host belong together, unless the host is split.
func (a *assignment) owner(t *target, region string) uuid.UUID {
	key := t.host
	if a.split[t.host] {
		key += " " + t.id
	}
	return membership.Owner(a.candidates(t.record.Tenant, region), key)
}

// share is a dispatcher's part of the cap of a host that is split: the parts of all
// come to the cap.
func (a *assignment) share(self uuid.UUID, t *target, region string, limit int) int {
	if !a.split[t.host] || limit < 0 {
		return limit
	}
	among := a.candidates(t.record.Tenant, region)
	rank := slices.Index(among, self)
	if rank < 0 {
		return limit
	}
	part := limit / len(among)
	if rank < limit%len(among) {
		part++
	}
	return max(1, part)
}
