package filter_test

import (
	"bytes"
	"encoding/json"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/outhook/webhook/internal/filter"
)

// TestAFilterMeansWhatAPlainReadingOfItSays compares the package with an evaluator that
// decodes everything with encoding/json and compares numbers as fractions.
func TestAFilterMeansWhatAPlainReadingOfItSays(t *testing.T) {
	t.Parallel()

	rapid.Check(t, func(t *rapid.T) {
		payload := encode(t, drawValue(t, 3))
		conditions := drawConditions(t, 3, false)
		source := encode(t, conditions)
		f, err := filter.Compile(source)
		require.NoError(t, err, "%s", source)

		want := holds(conditions, decode(t, payload), true)
		if got := f.Match(payload); got != want {
			t.Fatalf("%s\non %s\ngot %v, want %v", source, payload, got, want)
		}
	})
}

// Few names and values, so that they meet.
var (
	names  = []string{"a", "b", "0", "1"}
	plains = []any{
		nil, true, false, "", "a", "ab", "b", "ü\"\\\n",
		json.Number("0"), json.Number("-0.0"), json.Number("1"), json.Number("1.0"), json.Number("10e-1"), json.Number("-1"),
		json.Number("0.10"), json.Number("1E-1"), json.Number("100"), json.Number("1e2"), json.Number("1.01"),
		json.Number("9007199254740993"), json.Number("9007199254740992"), json.Number("9.007199254740993e15"),
	}
)

func drawPlain(t *rapid.T) any { return rapid.SampledFrom(plains).Draw(t, "plain") }

func drawValue(t *rapid.T, depth int) any {
	kind := rapid.IntRange(0, 3).Draw(t, "kind")
	if depth == 0 || kind == 0 {
		return drawPlain(t)
	}
	n := rapid.IntRange(0, 3).Draw(t, "size")
	if kind == 1 {
		array := make([]any, n)
		for i := range array {
			array[i] = drawValue(t, depth-1)
		}
		return array
	}
	object := map[string]any{}
	for range n {
		object[rapid.SampledFrom(names).Draw(t, "name")] = drawValue(t, depth-1)
	}
	return object
}

func drawConditions(t *rapid.T, depth int, inPath bool) map[string]any {
	conditions := map[string]any{}
	for range rapid.IntRange(1, 2).Draw(t, "conditions") {
		switch kind := rapid.IntRange(0, 6).Draw(t, "condition"); {
		case kind == 0 && depth > 0:
			conditions["$not"] = drawConditions(t, depth-1, inPath)
		case kind == 1 && depth > 0:
			op := rapid.SampledFrom([]string{"$and", "$or"}).Draw(t, "logic")
			conditions[op] = []any{drawConditions(t, depth-1, inPath), drawConditions(t, depth-1, inPath)}
		case kind <= 3 && inPath:
			op := rapid.SampledFrom([]string{"$eq", "$ne", "$gt", "$gte", "$lt", "$lte", "$in", "$nin", "$exists", "$prefix"}).Draw(t, "op")
			conditions[op] = drawOperand(t, op)
		case kind <= 5 && depth > 0:
			conditions[drawPath(t)] = drawConditions(t, depth-1, true)
		default:
			conditions[drawPath(t)] = drawPlain(t)
		}
	}
	return conditions
}

func drawPath(t *rapid.T) string {
	return strings.Join(rapid.SliceOfN(rapid.SampledFrom(names), 1, 3).Draw(t, "path"), ".")
}

func drawOperand(t *rapid.T, op string) any {
	switch op {
	case "$in", "$nin":
		return []any{drawPlain(t), drawPlain(t)}
	case "$exists":
		return rapid.Bool().Draw(t, "exists")
	case "$prefix":
		return rapid.SampledFrom([]string{"", "a", "ab", "ü"}).Draw(t, "prefix")
	case "$eq", "$ne":
		return drawPlain(t)
	default:
		return rapid.SampledFrom(plains[3:]).Draw(t, "ordered")
	}
}

func encode(t *rapid.T, v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	require.NoError(t, e.Encode(v))
	return b.Bytes()
}

func decode(t *rapid.T, data []byte) any {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var v any
	require.NoError(t, d.Decode(&v))
	return v
}

func holds(conditions map[string]any, at any, found bool) bool {
	for key, operand := range conditions {
		if !memberHolds(key, operand, at, found) {
			return false
		}
	}
	return true
}

func memberHolds(key string, operand, at any, found bool) bool {
	each := func(c any) bool { return holds(c.(map[string]any), at, found) }
	equal := func(v any) bool { return found && order(at, v) == 0 }
	switch key {
	case "$and":
		return !slices.ContainsFunc(operand.([]any), func(c any) bool { return !each(c) })
	case "$or":
		return slices.ContainsFunc(operand.([]any), each)
	case "$not":
		return !each(operand)
	case "$eq":
		return equal(operand)
	case "$ne":
		return !equal(operand)
	case "$in":
		return slices.ContainsFunc(operand.([]any), equal)
	case "$nin":
		return !slices.ContainsFunc(operand.([]any), equal)
	case "$exists":
		return found == operand.(bool)
	case "$prefix":
		s, ok := at.(string)
		return ok && strings.HasPrefix(s, operand.(string))
	case "$gt":
		return found && order(at, operand) == 1
	case "$gte":
		return found && (order(at, operand) == 1 || order(at, operand) == 0)
	case "$lt":
		return found && order(at, operand) == -1
	case "$lte":
		return found && (order(at, operand) == -1 || order(at, operand) == 0)
	}
	for segment := range strings.SplitSeq(key, ".") {
		at, found = step(at, segment)
		if !found {
			break
		}
	}
	if c, nested := operand.(map[string]any); nested {
		return holds(c, at, found)
	}
	return found && order(at, operand) == 0
}

func step(at any, segment string) (any, bool) {
	switch v := at.(type) {
	case map[string]any:
		member, found := v[segment]
		return member, found
	case []any:
		i, err := strconv.Atoi(segment)
		if err != nil || i < 0 || i >= len(v) {
			return nil, false
		}
		return v[i], true
	}
	return nil, false
}

const incomparable = 2

func order(a, b any) int {
	switch a := a.(type) {
	case nil:
		if b == nil {
			return 0
		}
	case bool:
		if b, ok := b.(bool); ok && a == b {
			return 0
		}
	case string:
		if b, ok := b.(string); ok {
			return strings.Compare(a, b)
		}
	case json.Number:
		if b, ok := b.(json.Number); ok {
			return fraction(a).Cmp(fraction(b))
		}
	}
	return incomparable
}

func fraction(n json.Number) *big.Rat {
	r, ok := new(big.Rat).SetString(n.String())
	if !ok {
		panic("not a number: " + n.String())
	}
	return r
}

// TestNumbersAreComparedExactly draws any two numbers; the one above draws from few.
func TestNumbersAreComparedExactly(t *testing.T) {
	t.Parallel()

	number := rapid.StringMatching(`-?(0|[1-9][0-9]{0,20})(\.[0-9]{1,20})?([eE][+-]?0?[0-9]{1,2})?`)
	rapid.Check(t, func(t *rapid.T) {
		a, b := number.Draw(t, "a"), number.Draw(t, "b")
		if rapid.Bool().Draw(t, "same value") {
			shifted := new(big.Rat).Set(fraction(json.Number(a)))
			b = shifted.FloatString(130)
		}
		want := fraction(json.Number(a)).Cmp(fraction(json.Number(b)))
		for op, expected := range map[string]bool{"$eq": want == 0, "$lt": want < 0, "$gt": want > 0} {
			f, err := filter.Compile([]byte(`{"n": {"` + op + `": ` + b + `}}`))
			require.NoError(t, err)
			if got := f.Match([]byte(`{"n":` + a + `}`)); got != expected {
				t.Fatalf("%s %s %s: got %v", a, op, b, got)
			}
		}
	})
}

func TestAnEnormousExponentInAPayloadIsFarFromAnyFilter(t *testing.T) {
	t.Parallel()

	for payload, want := range map[string]string{
		`{"n": 1e99999999999999999999}`:  `{"n": {"$gt": 1e999999}}`,
		`{"n": -1e99999999999999999999}`: `{"n": {"$lt": -1e999999}}`,
		`{"n": 1e-99999999999999999999}`: `{"n": {"$gt": 0, "$lt": 1e-999999}}`,
		`{"n": 0e99999999999999999999}`:  `{"n": 0}`,
	} {
		f, err := filter.Compile([]byte(want))
		require.NoError(t, err)
		require.True(t, f.Match([]byte(payload)), payload)
	}
}
