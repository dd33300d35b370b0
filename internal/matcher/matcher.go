// Package matcher finds the endpoints that an event goes to: an index in memory from
// tenant and event type to endpoints, kept up to date change by change.
//
// A tenant has one list of endpoints, in the order of their ids, for each pattern that
// any of them has. An event of type a.b.c can match only the patterns a.b.c, a.b.*, a.*
// and *, so a match merges a handful of sorted lists and costs what it returns,
// however many endpoints and tenants there are.
package matcher

import (
	"bytes"
	"slices"
	"strings"
	"sync"

	"github.com/google/uuid"

	"github.com/outhook/webhook/internal/filter"
)

// Endpoint is what the matcher knows about an endpoint. The matcher keeps it: the
// patterns must not be changed afterwards.
type Endpoint struct {
	ID     uuid.UUID
	Tenant string
	// Patterns are event types, type prefixes such as "order.*", or "*"; valid by
	// ValidatePattern. One that is not matches at most the type that is equal to it.
	Patterns []string
	// Filter, if not nil, is a condition on the payload.
	Filter *filter.Filter
}

// Matcher is the index. It is safe for concurrent use: matches run side by side and
// see each Apply wholly or not at all.
type Matcher struct {
	mu        sync.RWMutex // guards all below
	revision  int64
	endpoints map[uuid.UUID]Endpoint
	tenants   map[string]lists
	filters   int // endpoints with a filter

	documents sync.Pool // of *filter.Document
}

// lists are a tenant's endpoints by pattern. Patterns that end in ".*" are keyed
// without their asterisk; no event type ends in a dot, so they meet no exact one.
type lists map[string][]entry

// entry is an endpoint in a list, sorted by id.
type entry struct {
	id     uuid.UUID
	filter *filter.Filter
}

// New returns an empty matcher of revision -1: one that reflects nothing yet.
func New() *Matcher {
	return &Matcher{
		revision:  -1,
		endpoints: map[uuid.UUID]Endpoint{},
		tenants:   map[string]lists{},
		documents: sync.Pool{New: func() any { return new(filter.Document) }},
	}
}

// Revision is that of the last Apply, -1 before the first.
func (m *Matcher) Revision() int64 {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.revision
}

// Len is the number of endpoints.
func (m *Matcher) Len() int {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return len(m.endpoints)
}

// WantsPayload reports whether any endpoint has a filter. Without one, Match does not
// look at payloads.
func (m *Matcher) WantsPayload() bool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.filters > 0
}

// Apply brings the matcher to a revision in one step: changed endpoints are added, or
// replaced if their id is known; removed ones are forgotten, if known. Of an id that
// comes more than once in changed the last counts; one in both lists is removed.
func (m *Matcher) Apply(revision int64, changed []Endpoint, removed []uuid.UUID) {
	m.mu.Lock()
	defer m.mu.Unlock()

	e := edit{matcher: m, touched: map[listKey]listEdit{}}
	for _, endpoint := range changed {
		e.remove(endpoint.ID)
		e.add(endpoint)
	}
	for _, id := range removed {
		e.remove(id)
	}
	e.finish()
	m.revision = revision
}

// Match appends to dst the endpoints of an event, in ascending order of id, beginning
// after the id "after" (zero for the first), at most max of them; more tells whether
// another call after the last one would find any. An endpoint comes once, however many
// of its patterns match. An endpoint with a filter does not match a payload that is
// not valid JSON.
func (m *Matcher) Match(
	dst []uuid.UUID, tenant, eventType string, payload []byte, after uuid.UUID, max int,
) (ids []uuid.UUID, more bool) {
	return m.match(dst, tenant, eventType, payload, true, after, max)
}

// MatchTypes is Match for a payload that every filter lets through.
func (m *Matcher) MatchTypes(dst []uuid.UUID, tenant, eventType string, after uuid.UUID, max int) (ids []uuid.UUID, more bool) {
	return m.match(dst, tenant, eventType, nil, false, after, max)
}

// WantsPayloadOf reports whether an endpoint with a filter is subscribed to the events of
// a tenant and type.
func (m *Matcher) WantsPayloadOf(tenant, eventType string) bool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.filters == 0 {
		return false
	}
	var room [maxLists]cursor
	for _, list := range m.cursors(room[:0], tenant, eventType, uuid.Nil) {
		if slices.ContainsFunc(list, func(e entry) bool { return e.filter != nil }) {
			return true
		}
	}
	return false
}

func (m *Matcher) match(
	dst []uuid.UUID, tenant, eventType string, payload []byte, filtered bool, after uuid.UUID, max int,
) (ids []uuid.UUID, more bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()

	var room [maxLists]cursor
	open := m.cursors(room[:0], tenant, eventType, after)
	var document *filter.Document // prepared for the first filter that asks
	defer func() {
		if document != nil {
			document.Reset(nil)
			m.documents.Put(document)
		}
	}()
	for n := 0; len(open) > 0; {
		var next entry
		next, open = advance(open)
		if filtered && next.filter != nil {
			if document == nil {
				document = m.documents.Get().(*filter.Document)
				document.Reset(payload)
			}
			if !next.filter.MatchDocument(document) {
				continue
			}
		}
		if n == max {
			return dst, true
		}
		dst = append(dst, next.id)
		n++
	}
	return dst, false
}

// maxLists is how many lists an event type of MaxTypeBytes can meet: itself,
// everything, and a prefix for each of its at most 63 dots.
const maxLists = MaxTypeBytes/2 + 1

// cursor is what is left of a list, never empty.
type cursor []entry

// cursors appends the lists that an event of this type may match, from after on.
func (m *Matcher) cursors(open []cursor, tenant, eventType string, after uuid.UUID) []cursor {
	patterns := m.tenants[tenant]
	if len(patterns) == 0 {
		return open
	}
	open = appendRest(open, patterns[everything], after)
	for i := range len(eventType) {
		if eventType[i] == '.' {
			open = appendRest(open, patterns[eventType[:i+1]], after)
		}
	}
	// What is no event type matches no list by its name.
	if eventType != everything && !strings.HasSuffix(eventType, ".") {
		open = appendRest(open, patterns[eventType], after)
	}
	return open
}

func appendRest(open []cursor, list []entry, after uuid.UUID) []cursor {
	if after != uuid.Nil {
		at, found := search(list, after)
		if found {
			at++
		}
		list = list[at:]
	}
	if len(list) == 0 {
		return open
	}
	return append(open, list)
}

// advance takes the entry with the smallest id off all the lists that it is in, and
// closes those that have come to their end.
func advance(lists []cursor) (smallest entry, open []cursor) {
	smallest = lists[0][0]
	for _, list := range lists[1:] {
		if compare(list[0].id, smallest.id) < 0 {
			smallest = list[0]
		}
	}
	kept := lists[:0]
	for _, list := range lists {
		if list[0].id == smallest.id {
			list = list[1:]
		}
		if len(list) > 0 {
			kept = append(kept, list)
		}
	}
	return smallest, kept
}

func search(list []entry, id uuid.UUID) (at int, found bool) {
	return slices.BinarySearchFunc(list, id, func(e entry, id uuid.UUID) int { return compare(e.id, id) })
}

func compare(a, b uuid.UUID) int { return bytes.Compare(a[:], b[:]) }
