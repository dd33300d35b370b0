package matcher_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/outhook/webhook/internal/filter"
	"github.com/outhook/webhook/internal/matcher"
)

func id(n int) uuid.UUID {
	var u uuid.UUID
	u[0], u[14], u[15] = byte(n>>16), byte(n>>8), byte(n)
	return u
}

func endpoint(n int, tenant string, patterns ...string) matcher.Endpoint {
	return matcher.Endpoint{ID: id(n), Tenant: tenant, Patterns: patterns}
}

func all(m *matcher.Matcher, tenant, eventType, payload string) []uuid.UUID {
	ids, more := m.Match(nil, tenant, eventType, []byte(payload), uuid.Nil, 1<<30)
	if more {
		panic("more than everything")
	}
	return ids
}

func TestAPatternMatchesWhatItSays(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		pattern, eventType string
		want               bool
	}{
		{"*", "order", true},
		{"*", "order.paid", true},
		{"order.*", "order.paid", true},
		{"order.*", "order.paid.late", true},
		{"order.*", "order", false},
		{"order.*", "orders.paid", false},
		{"order.paid.*", "order.paid", false},
		{"order.paid.*", "order.paid.late", true},
		{"order.paid", "order.paid", true},
		{"order.paid", "order.paid.late", false},
		{"order.paid", "Order.paid", false},
		{"order", "order.paid", false},
	} {
		t.Run(c.pattern+" on "+c.eventType, func(t *testing.T) {
			t.Parallel()
			require.NoError(t, matcher.ValidatePattern(c.pattern))
			require.NoError(t, matcher.ValidateType(c.eventType))
			m := matcher.New()
			m.Apply(1, []matcher.Endpoint{endpoint(1, "acme", c.pattern)}, nil)
			assert.Equal(t, c.want, len(all(m, "acme", c.eventType, "")) == 1)
		})
	}
}

func TestSeveralMatchingPatternsMakeOneMatch(t *testing.T) {
	t.Parallel()

	m := matcher.New()
	m.Apply(1, []matcher.Endpoint{
		endpoint(2, "acme", "*", "order.*", "order.paid", "order.paid"),
		endpoint(1, "acme", "order.paid"),
		endpoint(3, "acme", "order.*"),
	}, nil)
	assert.Equal(t, []uuid.UUID{id(1), id(2), id(3)}, all(m, "acme", "order.paid", ""))
}

func TestAMatchGoesOnWhereItStopped(t *testing.T) {
	t.Parallel()

	m := matcher.New()
	var changed []matcher.Endpoint
	for n := 1; n <= 10; n++ {
		changed = append(changed, endpoint(n, "acme", "*", "order.*"))
	}
	m.Apply(1, changed, nil)

	ids, more := m.Match(nil, "acme", "order.paid", nil, uuid.Nil, 4)
	assert.Equal(t, []uuid.UUID{id(1), id(2), id(3), id(4)}, ids)
	assert.True(t, more)

	// The place may have been deleted meanwhile.
	m.Apply(2, nil, []uuid.UUID{id(4), id(5)})
	ids, more = m.Match(ids[:0], "acme", "order.paid", nil, id(4), 4)
	assert.Equal(t, []uuid.UUID{id(6), id(7), id(8), id(9)}, ids)
	assert.True(t, more)

	ids, more = m.Match(ids[:0], "acme", "order.paid", nil, id(9), 1)
	assert.Equal(t, []uuid.UUID{id(10)}, ids)
	assert.False(t, more, "exactly as many as were asked for are left")

	ids, more = m.Match(ids[:0], "acme", "order.paid", nil, id(10), 1)
	assert.Empty(t, ids)
	assert.False(t, more)
}

func TestAFilterIsAskedAboutThePayload(t *testing.T) {
	t.Parallel()

	large, err := filter.Compile([]byte(`{"amount": {"$gt": 100}}`))
	require.NoError(t, err)
	m := matcher.New()
	assert.False(t, m.WantsPayload())
	filtered := endpoint(1, "acme", "*")
	filtered.Filter = large
	m.Apply(1, []matcher.Endpoint{filtered, endpoint(2, "acme", "*")}, nil)

	assert.True(t, m.WantsPayload())
	assert.Equal(t, []uuid.UUID{id(1), id(2)}, all(m, "acme", "order", `{"amount": 101}`))
	assert.Equal(t, []uuid.UUID{id(2)}, all(m, "acme", "order", `{"amount": 100}`))
	assert.Equal(t, []uuid.UUID{id(2)}, all(m, "acme", "order", `not JSON`))

	// Whatever follows is filtered out: then there is no more.
	_, more := m.Match(nil, "acme", "order", []byte(`{"amount": 1}`), uuid.Nil, 1)
	assert.False(t, more)

	m.Apply(2, []matcher.Endpoint{endpoint(1, "acme", "*")}, nil)
	assert.False(t, m.WantsPayload(), "the filter was taken away")
	assert.Equal(t, []uuid.UUID{id(1), id(2)}, all(m, "acme", "order", `{"amount": 1}`))
}

func TestARevisionIsThatOfTheLastApply(t *testing.T) {
	t.Parallel()

	m := matcher.New()
	assert.EqualValues(t, -1, m.Revision())
	m.Apply(0, nil, nil)
	assert.EqualValues(t, 0, m.Revision())
	m.Apply(7, []matcher.Endpoint{endpoint(1, "acme", "*")}, []uuid.UUID{id(9)})
	assert.EqualValues(t, 7, m.Revision())
	assert.Equal(t, 1, m.Len())
}

// TestNoEventReachesAnotherTenant runs random changes on the matcher and on the
// plainest model of it, and compares every match, in steps of random size.
func TestNoEventReachesAnotherTenant(t *testing.T) {
	t.Parallel()

	filters := map[string]*filter.Filter{}
	for _, source := range []string{`{"n": {"$gt": 1}}`, `{"n": {"$lte": 1}}`, `{"$not": {"n": 2}}`} {
		f, err := filter.Compile([]byte(source))
		require.NoError(t, err)
		filters[source] = f
	}
	sources := slices.Sorted(func(yield func(string) bool) {
		for source := range filters {
			if !yield(source) {
				return
			}
		}
	})
	tenants := rapid.SampledFrom([]string{"", "a", "b", "a.b", "*"})
	types := rapid.SampledFrom([]string{"a", "a.b", "a.b.c", "ab", "b", "b.a"})
	patterns := rapid.SliceOfN(rapid.SampledFrom([]string{"*", "a", "a.*", "a.b", "a.b.*", "a.b.c", "b.*", "ab"}), 0, 4)
	ids := rapid.Custom(func(t *rapid.T) uuid.UUID { return id(rapid.IntRange(1, 30).Draw(t, "id")) })
	endpoints := rapid.Custom(func(t *rapid.T) matcher.Endpoint {
		e := matcher.Endpoint{ID: ids.Draw(t, "id"), Tenant: tenants.Draw(t, "tenant"), Patterns: patterns.Draw(t, "patterns")}
		if i := rapid.IntRange(0, 5).Draw(t, "filter"); i < len(sources) {
			e.Filter = filters[sources[i]]
		}
		return e
	})

	rapid.Check(t, func(t *rapid.T) {
		m, model := matcher.New(), naive{}
		for revision := range rapid.Int64Range(1, 6).Draw(t, "applies") {
			changed := rapid.SliceOfN(endpoints, 0, 25).Draw(t, "changed")
			removed := rapid.SliceOfN(ids, 0, 10).Draw(t, "removed")
			m.Apply(revision, changed, removed)
			model.apply(changed, removed)
			require.Equal(t, len(model), m.Len())

			for range 5 {
				tenant, eventType := tenants.Draw(t, "tenant"), types.Draw(t, "type")
				payload := []byte(rapid.SampledFrom([]string{`{"n":1}`, `{"n":2}`, `{}`, ``}).Draw(t, "payload"))
				want := model.match(tenant, eventType, payload)
				got := inSteps(m, tenant, eventType, payload, rapid.IntRange(1, 4).Draw(t, "step"))
				if !slices.Equal(got, want) {
					t.Fatalf("%q of tenant %q: got %v, want %v", eventType, tenant, got, want)
				}
			}
		}
	})
}

func inSteps(m *matcher.Matcher, tenant, eventType string, payload []byte, step int) (ids []uuid.UUID) {
	var after uuid.UUID
	for {
		var more bool
		ids, more = m.Match(ids, tenant, eventType, payload, after, step)
		if !more {
			return ids
		}
		after = ids[len(ids)-1]
	}
}

// naive looks at every endpoint for every event.
type naive map[uuid.UUID]matcher.Endpoint

func (n naive) apply(changed []matcher.Endpoint, removed []uuid.UUID) {
	for _, e := range changed {
		n[e.ID] = e
	}
	for _, id := range removed {
		delete(n, id)
	}
}

func (n naive) match(tenant, eventType string, payload []byte) (ids []uuid.UUID) {
	for id, e := range n {
		matches := slices.ContainsFunc(e.Patterns, func(pattern string) bool {
			prefix, open := strings.CutSuffix(pattern, "*")
			return open && strings.HasPrefix(eventType, prefix) || pattern == eventType
		})
		if e.Tenant == tenant && matches && e.Filter.Match(payload) {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, func(a, b uuid.UUID) int { return bytes.Compare(a[:], b[:]) })
	return ids
}

func TestMatchesSeeEachApplyWhollyOrNotAtAll(t *testing.T) {
	t.Parallel()

	m := matcher.New()
	m.Apply(0, []matcher.Endpoint{endpoint(1, "acme", "a"), endpoint(2, "acme", "a")}, nil)
	done := make(chan struct{})
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
					n := len(all(m, "acme", "a", "")) + len(all(m, "acme", "none", ""))
					if n != 0 && n != 2 {
						t.Errorf("saw %d of 2 endpoints", n)
						return
					}
				}
			}
		})
	}
	for revision := range int64(500) {
		m.Apply(revision, nil, []uuid.UUID{id(1), id(2)})
		m.Apply(revision, []matcher.Endpoint{endpoint(1, "acme", "a"), endpoint(2, "acme", "a", "*.")}, nil)
	}
	close(done)
	readers.Wait()
}

func TestATypeIsCheckedAsTheContractSays(t *testing.T) {
	t.Parallel()

	long := strings.Repeat("a", matcher.MaxTypeBytes)
	for _, valid := range []string{"a", "invoice.paid", "A_1.b.c", "1", "_", long, strings.Repeat("a.", 63) + "ab"} {
		require.NoError(t, matcher.ValidateType(valid))
		require.NoError(t, matcher.ValidatePattern(valid))
		require.NoError(t, matcher.ValidatePattern(valid+".*"))
	}
	for invalid, problem := range map[string]string{
		"": "is empty", ".": "empty segment", ".a": "empty segment", "a..b": "empty segment", "a.": "ends with a dot",
		"a b": "may hold only", "a-b": "may hold only", "ä": "may hold only", "a\n": "may hold only", "*": "may hold only",
		"a.*": "may hold only", long + "a": "longer than 128 bytes",
	} {
		err := matcher.ValidateType(invalid)
		require.ErrorIs(t, err, matcher.ErrType, "%q", invalid)
		assert.ErrorContains(t, err, problem, "%q", invalid)
	}
	for _, invalid := range []string{"", ".*", "**", "*.*", "a*", "*.a", "a.*.b", "a..*", "a.**", " *", long + "a.*"} {
		require.ErrorIs(t, matcher.ValidatePattern(invalid), matcher.ErrPattern, "%q", invalid)
	}
}

func TestMatchingDoesNotAllocate(t *testing.T) {
	m := fleet(1000, 100)
	dst := make([]uuid.UUID, 0, 100)
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		dst, _ = m.Match(dst[:0], "tenant-5", "order.paid.late", nil, uuid.Nil, 100)
	}))
	assert.NotEmpty(t, dst)
}

// fleet has n endpoints, spread over tenants, with the patterns that customers use.
func fleet(n, tenants int) *matcher.Matcher {
	patterns := [][]string{
		{"*"},
		{"order.*"},
		{"invoice.*", "order.paid"},
		{"order.paid", "order.cancelled", "order.refunded", "invoice.paid", "invoice.voided"},
		{"customer.created", "customer.*", "product.updated", "order.paid.late"},
	}
	changed := make([]matcher.Endpoint, n)
	for i := range changed {
		changed[i] = endpoint(i+1, fmt.Sprintf("tenant-%d", i%tenants), patterns[i/tenants%len(patterns)]...)
	}
	m := matcher.New()
	m.Apply(1, changed, nil)
	return m
}

func BenchmarkMatch(b *testing.B) {
	for _, size := range []struct{ endpoints, tenants int }{{40_000, 10_000}, {100_000, 1}} {
		name := fmt.Sprintf("%d endpoints of %d tenants", size.endpoints, size.tenants)
		m := fleet(size.endpoints, size.tenants)
		b.Run(name+"/first 1000", func(b *testing.B) {
			b.ReportAllocs()
			dst := make([]uuid.UUID, 0, 1000)
			for b.Loop() {
				dst, _ = m.Match(dst[:0], "tenant-0", "order.paid", nil, uuid.Nil, 1000)
			}
			b.ReportMetric(float64(len(dst)), "matches/op")
		})
		b.Run(name+"/1000 from the middle", func(b *testing.B) {
			b.ReportAllocs()
			dst := make([]uuid.UUID, 0, 1000)
			for b.Loop() {
				dst, _ = m.Match(dst[:0], "tenant-0", "order.paid", nil, id(size.endpoints/2), 1000)
			}
			b.ReportMetric(float64(len(dst)), "matches/op")
		})
		b.Run(name+"/change one", func(b *testing.B) {
			b.ReportAllocs()
			changed := []matcher.Endpoint{endpoint(size.endpoints/2, "tenant-0", "order.*", "invoice.paid")}
			for b.Loop() {
				m.Apply(2, changed, nil)
			}
		})
	}
	b.Run("load 100000", func(b *testing.B) {
		for b.Loop() {
			fleet(100_000, 1)
		}
	})
}
