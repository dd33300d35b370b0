package storetest

import (
	"bytes"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/outhook/webhook"
)

// matcher is the plainest correct [webhook.Matcher]: it looks at every endpoint
// for every event.
type matcher struct {
	endpoints map[uuid.UUID]webhook.EndpointRecord
	revision  int64

	wantsPayload bool
	// seen are copies of the events that Match was asked about, in order.
	seen []webhook.EventRecord
	// beforeMatch and beforeApply let a test get between.
	beforeMatch func(*webhook.EventRecord)
	beforeApply func() error
}

func newMatcher() *matcher {
	return &matcher{endpoints: map[uuid.UUID]webhook.EndpointRecord{}, revision: -1}
}

func (m *matcher) Revision() int64 { return m.revision }

func (m *matcher) Apply(endpoints []webhook.EndpointRecord, revision int64) error {
	if m.beforeApply != nil {
		if err := m.beforeApply(); err != nil {
			return err
		}
	}
	for _, e := range endpoints {
		if e.DeletedAt.IsZero() {
			m.endpoints[e.ID] = e
		} else {
			delete(m.endpoints, e.ID)
		}
	}
	m.revision = revision
	return nil
}

// Ordering is what the endpoint's record says.
func (m *matcher) Ordering(id uuid.UUID) webhook.Ordering { return m.endpoints[id].Ordering }

func (m *matcher) WantsPayload() bool { return m.wantsPayload }

func (m *matcher) Match(dst []uuid.UUID, event *webhook.EventRecord, after uuid.UUID, limit int) ([]uuid.UUID, bool) {
	seen := *event
	seen.Payload = bytes.Clone(event.Payload)
	m.seen = append(m.seen, seen)
	if m.beforeMatch != nil {
		m.beforeMatch(event)
	}
	var found []uuid.UUID
	for id, e := range m.endpoints {
		if e.Tenant == event.Tenant && compareIDs(id, after) > 0 && matchesAny(e.Types, event.Type) {
			found = append(found, id)
		}
	}
	slices.SortFunc(found, compareIDs)
	if len(found) > limit {
		return append(dst, found[:limit]...), true
	}
	return append(dst, found...), false
}

func matchesAny(patterns []string, eventType string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		if prefix, open := strings.CutSuffix(pattern, "*"); open {
			return strings.HasPrefix(eventType, prefix)
		}
		return pattern == eventType
	})
}

func compareIDs(a, b uuid.UUID) int { return bytes.Compare(a[:], b[:]) }
