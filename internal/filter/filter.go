package filter

import (
	"slices"
	"strings"
)

// Filter is a compiled filter. It is immutable and safe for concurrent use; nil matches
// everything.
type Filter struct {
	root condition
}

// Match reports whether the payload satisfies the filter. To evaluate many filters on
// one payload, prepare a Document once and use MatchDocument.
func (f *Filter) Match(payload []byte) bool {
	if f == nil {
		return true
	}
	var d Document
	d.Reset(payload)
	return f.MatchDocument(&d)
}

// MatchDocument is Match on a prepared payload. An invalid document matches no filter
// but nil.
func (f *Filter) MatchDocument(d *Document) bool {
	if f == nil {
		return true
	}
	return d.valid() && f.root.holds(d)
}

type operator uint8

const (
	opAnd operator = iota
	opOr
	opNot
	opEq
	opNe
	opGt
	opGte
	opLt
	opLte
	opIn
	opNin
	opExists
	opPrefix
)

var operators = map[string]operator{
	"$and": opAnd, "$or": opOr, "$not": opNot,
	"$eq": opEq, "$ne": opNe, "$gt": opGt, "$gte": opGte, "$lt": opLt, "$lte": opLte,
	"$in": opIn, "$nin": opNin, "$exists": opExists, "$prefix": opPrefix,
}

// condition is a node of the compiled filter: a logical operator with children, or a
// comparison of what is at the path with operands.
type condition struct {
	op       operator
	children []condition // of opAnd and opOr one or more, of opNot one
	path     []string
	operands []value // of opIn and opNin any number, of the other comparisons one
}

// value is a plain value of the filter.
type value struct {
	kind   kind
	yes    bool
	text   string
	number decimal
}

func (c *condition) holds(d *Document) bool {
	switch c.op {
	case opAnd:
		for i := range c.children {
			if !c.children[i].holds(d) {
				return false
			}
		}
		return true
	case opOr:
		for i := range c.children {
			if c.children[i].holds(d) {
				return true
			}
		}
		return false
	case opNot:
		return !c.children[0].holds(d)
	default:
		return c.compares(d, d.find(c.path))
	}
}

// compares decides a comparison; n is nil where the path leads nowhere.
func (c *condition) compares(d *Document, n *node) bool {
	switch c.op {
	case opExists:
		return (n != nil) == c.operands[0].yes
	case opEq, opIn:
		return n != nil && c.equalsAny(d, n)
	case opNe, opNin:
		return n == nil || !c.equalsAny(d, n)
	case opPrefix:
		return n != nil && n.kind == kindString && d.hasPrefix(n, c.operands[0].text)
	}
	if n == nil || n.kind != c.operands[0].kind {
		return false
	}
	order := d.compare(n, &c.operands[0])
	switch c.op {
	case opGt:
		return order > 0
	case opGte:
		return order >= 0
	case opLt:
		return order < 0
	case opLte:
		return order <= 0
	default:
		panic("filter: unknown operator") // Compile makes none
	}
}

func (c *condition) equalsAny(d *Document, n *node) bool {
	return slices.ContainsFunc(c.operands, func(v value) bool {
		return n.kind == v.kind && d.equals(n, &v)
	})
}

// equals compares values of the same kind.
func (d *Document) equals(n *node, v *value) bool {
	switch v.kind {
	case kindNull:
		return true
	case kindBool:
		return (d.data[n.start] == 't') == v.yes
	case kindString:
		return d.is(n, v.text)
	default:
		return d.compare(n, v) == 0
	}
}

// compare orders numbers or strings.
func (d *Document) compare(n *node, v *value) int {
	if v.kind == kindString {
		if n.escaped {
			return strings.Compare(d.text(n), v.text)
		}
		// Conversions within a comparison do not allocate.
		switch b := d.bytes(n); {
		case string(b) < v.text:
			return -1
		case string(b) > v.text:
			return 1
		default:
			return 0
		}
	}
	number := parseDecimal(d.bytes(n))
	return number.compare(&v.number)
}

func (d *Document) hasPrefix(n *node, prefix string) bool {
	if !n.escaped {
		b := d.bytes(n)
		return len(b) >= len(prefix) && string(b[:len(prefix)]) == prefix
	}
	return strings.HasPrefix(d.text(n), prefix)
}
