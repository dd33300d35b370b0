package filter_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outhook/webhook/internal/filter"
)

func TestConditionsOnAPayload(t *testing.T) {
	t.Parallel()

	const payload = `{
		"id": 9007199254740993, "status": "paid", "amount": 12.50, "big": 123456789012345678901234567890,
		"tiny": -1.5e-3, "test": false, "note": null, "a.b": 1, "$ref": "x", "": "nameless",
		"greeting": "Gr\u00fc\u00df \"Gott\"", "twice": 1, "twice": 2,
		"customer": {"country": "AT", "tags": ["new", "vip"], "0": "zero"},
		"items": [{"sku": "A-1", "n": 1}, {"sku": "B-2", "n": 2}]
	}`
	for _, c := range []struct {
		filter string
		want   bool
	}{
		// A plain value is $eq.
		{`{"status": "paid"}`, true},
		{`{"status": {"$eq": "paid"}}`, true},
		{`{"status": "Paid"}`, false},
		{`{"test": false}`, true},
		{`{"test": true}`, false},
		{`{"note": null}`, true},
		{`{"absent": null}`, false},
		{`{"customer": {"$eq": "AT"}}`, false},
		{`{"greeting": "Grüß \"Gott\""}`, true},
		{`{"twice": 2}`, true},
		{`{"twice": 1}`, false},
		// Several keys are all needed.
		{`{"status": "paid", "test": false}`, true},
		{`{"status": "paid", "test": true}`, false},
		// Numbers are exact, and of their own type.
		{`{"id": 9007199254740993}`, true},
		{`{"id": 9007199254740992}`, false},
		{`{"id": {"$gt": 9007199254740992}}`, true},
		{`{"id": {"$lt": 9007199254740994}}`, true},
		{`{"id": "9007199254740993"}`, false},
		{`{"amount": 12.5}`, true},
		{`{"amount": 125e-1}`, true},
		{`{"amount": {"$gte": 12.5, "$lte": 12.5}}`, true},
		{`{"amount": {"$gt": 12.5}}`, false},
		{`{"amount": {"$gt": "1"}}`, false},
		{`{"big": 1.2345678901234567890123456788e29}`, false},
		{`{"big": 1.23456789012345678901234567890e29}`, true},
		{`{"tiny": {"$lt": 0, "$gt": -1}}`, true},
		{`{"tiny": -0.0015}`, true},
		// Strings are ordered by bytes.
		{`{"status": {"$gt": "paia", "$lt": "paie"}}`, true},
		{`{"status": {"$gte": "paid", "$lte": "paid"}}`, true},
		{`{"greeting": {"$gt": "Grü", "$lt": "Grüßa"}}`, true},
		{`{"status": {"$gt": 1}}`, false},
		// The opposites hold where there is nothing.
		{`{"status": {"$ne": "open"}}`, true},
		{`{"status": {"$ne": "paid"}}`, false},
		{`{"absent": {"$ne": 1}}`, true},
		{`{"absent": {"$gt": 1}}`, false},
		{`{"status": {"$in": ["open", "paid"]}}`, true},
		{`{"status": {"$in": ["open", 1, null]}}`, false},
		{`{"note": {"$in": ["open", 1, null]}}`, true},
		{`{"status": {"$nin": ["open", "paid"]}}`, false},
		{`{"absent": {"$nin": ["open"]}}`, true},
		// Null is something.
		{`{"note": {"$exists": true}}`, true},
		{`{"absent": {"$exists": true}}`, false},
		{`{"absent": {"$exists": false}}`, true},
		{`{"customer": {"$exists": true}}`, true},
		{`{"status": {"$prefix": "pa"}}`, true},
		{`{"status": {"$prefix": "paid out"}}`, false},
		{`{"greeting": {"$prefix": "Grüß \""}}`, true},
		{`{"amount": {"$prefix": "1"}}`, false},
		// Paths.
		{`{"customer.country": "AT"}`, true},
		{`{"customer": {"country": "AT", "tags.1": "vip"}}`, true},
		{`{"customer.0": "zero"}`, true},
		{`{"customer.country.x": {"$exists": true}}`, false},
		{`{"a\\.b": 1}`, true},
		{`{"a.b": 1}`, false},
		{`{"\\$ref": "x"}`, true},
		{`{"items.1.sku": "B-2"}`, true},
		{`{"items.2.sku": {"$exists": true}}`, false},
		{`{"items.01.sku": {"$exists": true}}`, false},
		{`{"items.-1.sku": {"$exists": true}}`, false},
		{`{"items.99999999999999999999": {"$exists": true}}`, false},
		{`{"items.sku": "B-2"}`, false},
		{`{"customer.tags": "vip"}`, false},
		// Logic.
		{`{"$or": [{"status": "open"}, {"amount": {"$gt": 10}}]}`, true},
		{`{"$or": [{"status": "open"}, {"amount": {"$gt": 100}}]}`, false},
		{`{"$and": [{"status": "paid"}, {"amount": {"$gt": 100}}]}`, false},
		{`{"$not": {"status": "open"}}`, true},
		{`{"status": {"$not": {"$prefix": "pa"}}}`, false},
		{`{"amount": {"$or": [{"$lt": 1}, {"$gt": 12}]}}`, true},
		{`{"customer": {"$not": {"country": "AT", "tags.0": "new"}}}`, false},
		{`{"customer": {"$exists": true, "country": "AT"}}`, true},
	} {
		t.Run(c.filter, func(t *testing.T) {
			t.Parallel()
			f, err := filter.Compile([]byte(c.filter))
			require.NoError(t, err)
			assert.Equal(t, c.want, f.Match([]byte(payload)))
		})
	}
}

func TestAPayloadThatIsNotJSONMatchesNothing(t *testing.T) {
	t.Parallel()

	for _, payload := range []string{
		"", " ", "{", `{"a":1}x`, "<a/>", `{"a":01}`, "\xff", strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000),
	} {
		for _, source := range []string{`{"a": 1}`, `{"a": {"$ne": 1}}`, `{"$not": {"a": 1}}`, `{"a": {"$exists": false}}`} {
			f, err := filter.Compile([]byte(source))
			require.NoError(t, err)
			assert.False(t, f.Match([]byte(payload)), "%s on %.20q", source, payload)
		}
		assert.True(t, (*filter.Filter)(nil).Match([]byte(payload)), "no filter lets everything through")
	}
}

func TestAPayloadThatIsNoObjectHasNoPaths(t *testing.T) {
	t.Parallel()

	f, err := filter.Compile([]byte(`{"0": {"$exists": true}}`))
	require.NoError(t, err)
	assert.True(t, f.Match([]byte(` [ true ] `)))
	for _, payload := range []string{`null`, `12`, `"0"`, `[]`, `{}`} {
		assert.False(t, f.Match([]byte(payload)), payload)
	}
}

func TestAWrongFilterIsRefusedWithItsPlace(t *testing.T) {
	t.Parallel()

	for source, want := range map[string]string{
		``:                             `filter: is not valid JSON`,
		`{"a": }`:                      `filter: is not valid JSON`,
		`[]`:                           `filter: must be an object of conditions, is an array`,
		`{}`:                           `filter: is empty: it holds no condition`,
		`{"a": {}}`:                    `filter: at a: is empty: it holds no condition`,
		`{"a": 1, "a": 2}`:             `filter: at a: is given twice`,
		`{"a": [1]}`:                   `filter: at a: must be a plain value or an object of conditions, is an array (is $in meant?)`,
		`{"$eq": 1}`:                   `filter: at $eq: needs a path around it`,
		`{"a": {"$regex": "x"}}`:       `filter: at a.$regex: is not an operator`,
		`{"a": {"$gt": null}}`:         `filter: at a.$gt: needs a number or a string, got null`,
		`{"a": {"b": {"$lte": true}}}`: `filter: at a.b.$lte: needs a number or a string, got a boolean`,
		`{"a": {"$eq": {"b": 1}}}`:     `filter: at a.$eq: needs a plain value, got an object`,
		`{"a": {"$in": 1}}`:            `filter: at a.$in: needs an array of plain values, got a number`,
		`{"a": {"$in": []}}`:           `filter: at a.$in: needs at least one value`,
		`{"a": {"$nin": [[1]]}}`:       `filter: at a.$nin: needs a plain value, got an array`,
		`{"a": {"$exists": 1}}`:        `filter: at a.$exists: needs true or false, got a number`,
		`{"a": {"$prefix": 1}}`:        `filter: at a.$prefix: needs a string, got a number`,
		`{"a": {"$eq": 1e1000001}}`:    `filter: at a.$eq: has a number with an exponent beyond ±1000000`,
		`{"$or": {}}`:                  `filter: at $or: needs an array of conditions, got an object`,
		`{"$and": []}`:                 `filter: at $and: needs at least one condition`,
		`{"$or": [{"a": 1}, 2]}`:       `filter: at $or.1: must be an object of conditions, is a number`,
		`{"$not": [1]}`:                `filter: at $not: must be an object of conditions, is an array`,
		`{"a..b": 1}`:                  `filter: at a..b: is a path with an empty segment`,
		`{"": 1}`:                      `filter: is a path with an empty segment`,
		`{"a\\b": 1}`:                  `filter: at a\b: has a backslash that is not followed by a dot, a backslash or a dollar sign`,
		`{"a\u0000` + strings.Repeat("b", 99) + `": []}`: "filter: at a\ufffd" + strings.Repeat("b", 58) + `…: must be a plain value`,
	} {
		_, err := filter.Compile([]byte(source))
		var refused *filter.Error
		require.ErrorAs(t, err, &refused, source)
		assert.True(t, strings.HasPrefix(err.Error(), want), "%s\nwant %s\ngot  %s", source, want, err)
	}
}

func TestTheLimitsOfAFilter(t *testing.T) {
	t.Parallel()

	values := func(n int) string {
		return `{"a": {"$in": [` + strings.TrimSuffix(strings.Repeat("1,", n), ",") + `]}}`
	}
	nested := func(n int) string {
		return strings.Repeat(`{"$not":`, n) + `{"a":1}` + strings.Repeat(`}`, n)
	}
	path := func(n int) string {
		return `{"` + strings.TrimSuffix(strings.Repeat("a.", n), ".") + `": 1}`
	}
	long := func(n int) string {
		return `{"a": "` + strings.Repeat("x", n-len(`{"a": ""}`)) + `"}`
	}
	for name, c := range map[string]struct {
		source func(int) string
		limit  int
	}{
		"conditions": {values, filter.MaxConditions},
		"depth":      {nested, filter.MaxDepth},
		"segments":   {path, filter.MaxSegments},
		"bytes":      {long, filter.MaxBytes},
	} {
		_, err := filter.Compile([]byte(c.source(c.limit)))
		require.NoError(t, err, name)
		_, err = filter.Compile([]byte(c.source(c.limit + 1)))
		require.Error(t, err, name)
		assert.Contains(t, err.Error(), fmt.Sprint(c.limit), name)
	}
}

func TestAFilterKeepsNothingOfItsSource(t *testing.T) {
	t.Parallel()

	source := []byte(`{"n": 12345}`)
	f, err := filter.Compile(source)
	require.NoError(t, err)
	for i := range source {
		source[i] = '9'
	}
	assert.True(t, f.Match([]byte(`{"n": 12345}`)))
}

func FuzzFilter(f *testing.F) {
	f.Add(`{"a.b": {"$gte": 1e5}}`, `{"a": {"b": 100000}}`)
	f.Add(`{"$or": [{"a": null}, {"b.0": {"$prefix": "x\u0000"}}]}`, `{"b": ["x\u0000\\"]}`)
	f.Add(`{"a\\.b": {"$nin": [1, "2", true]}}`, `{"a.b": -0.0e-0}`)
	f.Fuzz(func(t *testing.T, source, payload string) {
		compiled, err := filter.Compile([]byte(source))
		if err != nil {
			return
		}
		opposite, err := filter.Compile([]byte(`{"$not": ` + source + `}`))
		if err != nil {
			return // one level or a few bytes over a limit
		}
		holds, fails := compiled.Match([]byte(payload)), opposite.Match([]byte(payload))
		if json.Valid([]byte(payload)) {
			assert.NotEqual(t, holds, fails, "exactly one of a filter and its opposite holds")
		} else {
			assert.False(t, holds || fails)
		}
	})
}

func BenchmarkMatchDocument(b *testing.B) {
	f, err := filter.Compile([]byte(`{"data.object.status": "paid", "data.object.amount": {"$gte": 1000}, "livemode": true}`))
	require.NoError(b, err)
	payload := []byte(`{"id":"evt_1","livemode":true,"data":{"object":{"id":"in_9","lines":[` +
		strings.TrimSuffix(strings.Repeat(`{"sku":"A-1","n":1,"price":12.5},`, 25), ",") +
		`],"status":"paid","amount":123456}}}`)
	b.Run("prepare and match", func(b *testing.B) {
		b.ReportAllocs()
		b.SetBytes(int64(len(payload)))
		var d filter.Document
		for b.Loop() {
			d.Reset(payload)
			if !f.MatchDocument(&d) {
				b.Fatal("no match")
			}
		}
	})
	b.Run("match", func(b *testing.B) {
		b.ReportAllocs()
		var d filter.Document
		d.Reset(payload)
		for b.Loop() {
			if !f.MatchDocument(&d) {
				b.Fatal("no match")
			}
		}
	})
}
