package matcher

import (
	"slices"
	"strings"

	"github.com/google/uuid"
)

// edit collects what one Apply does to each list, so that a list is rebuilt once and
// not once for each of the hundred thousand endpoints that a first Apply may bring.
type edit struct {
	matcher *Matcher // locked
	touched map[listKey]listEdit
}

type listKey struct{ tenant, pattern string }

// listEdit holds the endpoints whose membership in a list changes: those to add, and
// nil for those that leave.
type listEdit map[uuid.UUID]*entry

func (e *edit) add(endpoint Endpoint) {
	m := e.matcher
	m.endpoints[endpoint.ID] = endpoint
	if endpoint.Filter != nil {
		m.filters++
	}
	for _, pattern := range endpoint.Patterns {
		e.list(endpoint.Tenant, pattern)[endpoint.ID] = &entry{id: endpoint.ID, filter: endpoint.Filter}
	}
}

func (e *edit) remove(id uuid.UUID) {
	m := e.matcher
	known, ok := m.endpoints[id]
	if !ok {
		return
	}
	delete(m.endpoints, id)
	if known.Filter != nil {
		m.filters--
	}
	for _, pattern := range known.Patterns {
		e.list(known.Tenant, pattern)[id] = nil
	}
}

func (e *edit) list(tenant, pattern string) listEdit {
	key := listKey{tenant, pattern}
	if strings.HasSuffix(pattern, openEnd) {
		key.pattern = strings.TrimSuffix(pattern, "*")
	}
	list := e.touched[key]
	if list == nil {
		list = listEdit{}
		e.touched[key] = list
	}
	return list
}

func (e *edit) finish() {
	tenants := e.matcher.tenants
	for key, changes := range e.touched {
		patterns := tenants[key.tenant]
		if patterns == nil {
			patterns = lists{}
			tenants[key.tenant] = patterns
		}
		if list := changes.apply(patterns[key.pattern]); len(list) > 0 {
			patterns[key.pattern] = list
		} else {
			delete(patterns, key.pattern)
		}
		if len(patterns) == 0 {
			delete(tenants, key.tenant)
		}
	}
}

// few is the number of changes up to which a list is edited in place: each moves what
// stands behind it, and a new endpoint, whose id is mostly the highest, moves nothing.
const few = 8

// apply returns the sorted list with the changes made. It may reuse the list's memory.
func (c listEdit) apply(list []entry) []entry {
	if len(c) <= few {
		for id, change := range c {
			at, found := search(list, id)
			switch {
			case change != nil && found:
				list[at] = *change
			case change != nil:
				list = slices.Insert(list, at, *change)
			case found:
				list = slices.Delete(list, at, at+1)
			}
		}
		return list
	}
	kept := slices.DeleteFunc(list, func(e entry) bool {
		_, changed := c[e.id]
		return changed
	})
	for _, change := range c {
		if change != nil {
			kept = append(kept, *change)
		}
	}
	slices.SortFunc(kept, func(a, b entry) int { return compare(a.id, b.id) })
	return kept
}
