package filter

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"unicode"
)

// The limits of a filter. They keep its evaluation cheap: a tenant writes it, and
// everybody's fan-out runs it.
const (
	MaxBytes      = 16 << 10 // of the filter's JSON
	MaxConditions = 100      // comparisons, each value of $in and $nin counted
	MaxDepth      = 10       // objects and operators within one another
	MaxSegments   = 16       // of a path, nested objects included
)

// Error says what is wrong with a filter and where.
type Error struct {
	Path    string // keys and operators that lead there, such as customer.age.$gt; empty for the whole
	Problem string
}

func (e *Error) Error() string {
	if e.Path == "" {
		return "filter: " + e.Problem
	}
	return "filter: at " + e.Path + ": " + e.Problem
}

// Compile checks a filter and prepares it for evaluation. The error is an *Error.
func Compile(source []byte) (*Filter, error) {
	if len(source) > MaxBytes {
		return nil, &Error{Problem: fmt.Sprintf("is %d bytes long, the limit is %d", len(source), MaxBytes)}
	}
	// The compiled filter keeps slices of it.
	c := compiler{}
	if !c.doc.Reset(bytes.Clone(source)) {
		return nil, &Error{Problem: "is not valid JSON"}
	}
	root, err := c.object(0, nil, place{})
	if err != nil {
		return nil, err
	}
	return &Filter{root: root}, nil
}

type compiler struct {
	doc         Document
	comparisons int
}

// place is where in the filter we are, for errors and for the bound on depth.
type place struct {
	path  string
	depth int
}

func (p place) in(key string) place {
	key = printable(key)
	if p.path != "" {
		key = p.path + "." + key
	}
	return place{path: key, depth: p.depth + 1}
}

// printable makes of a tenant's key something that a log line can hold.
func printable(key string) string {
	const longest = 60
	short := strings.ToValidUTF8(key[:min(len(key), longest)], "")
	short = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return unicode.ReplacementChar
		}
		return r
	}, short)
	if len(key) > longest {
		short += "…"
	}
	return short
}

func (p place) errorf(format string, args ...any) error {
	return &Error{Path: p.path, Problem: fmt.Sprintf(format, args...)}
}

// object compiles an object of conditions on what is at base.
func (c *compiler) object(at int32, base []string, p place) (condition, error) {
	object := c.doc.nodes[at]
	if object.kind != kindObject {
		return condition{}, p.errorf("must be an object of conditions, is %s", object.kind)
	}
	if p.depth > MaxDepth {
		return condition{}, p.errorf("is nested more than %d deep", MaxDepth)
	}
	all := condition{op: opAnd}
	seen := map[string]bool{}
	for key := at + 1; key < object.next; key = c.doc.nodes[key+1].next {
		name := c.doc.text(&c.doc.nodes[key])
		inner := p.in(name)
		if seen[name] {
			return condition{}, inner.errorf("is given twice")
		}
		seen[name] = true
		child, err := c.member(name, key+1, base, inner)
		if err != nil {
			return condition{}, err
		}
		all.children = append(all.children, child)
	}
	switch len(all.children) {
	case 0:
		return condition{}, p.errorf("is empty: it holds no condition")
	case 1:
		return all.children[0], nil
	}
	return all, nil
}

func (c *compiler) member(name string, at int32, base []string, p place) (condition, error) {
	if strings.HasPrefix(name, "$") {
		op, known := operators[name]
		if !known {
			return condition{}, p.errorf("is not an operator")
		}
		switch op {
		case opAnd, opOr:
			return c.list(op, at, base, p)
		case opNot:
			child, err := c.object(at, base, p)
			return condition{op: opNot, children: []condition{child}}, err
		}
		if len(base) == 0 {
			return condition{}, p.errorf("needs a path around it")
		}
		return c.comparison(op, at, base, p)
	}
	segments, problem := splitPath(name)
	if problem != "" {
		return condition{}, p.errorf("%s", problem)
	}
	path := slices.Concat(base, segments)
	if len(path) > MaxSegments {
		return condition{}, p.errorf("is a path of more than %d segments", MaxSegments)
	}
	switch k := c.doc.nodes[at].kind; k {
	case kindObject:
		return c.object(at, path, p)
	case kindArray:
		return condition{}, p.errorf("must be a plain value or an object of conditions, is an array (is $in meant?)")
	default:
		return c.comparison(opEq, at, path, p)
	}
}

// list compiles the conditions of $and and $or.
func (c *compiler) list(op operator, at int32, base []string, p place) (condition, error) {
	array := c.doc.nodes[at]
	if array.kind != kindArray {
		return condition{}, p.errorf("needs an array of conditions, got %s", array.kind)
	}
	list := condition{op: op}
	for element := at + 1; element < array.next; element = c.doc.nodes[element].next {
		child, err := c.object(element, base, p.in(fmt.Sprint(len(list.children))))
		if err != nil {
			return condition{}, err
		}
		list.children = append(list.children, child)
	}
	if len(list.children) == 0 {
		return condition{}, p.errorf("needs at least one condition")
	}
	return list, nil
}

func (c *compiler) comparison(op operator, at int32, path []string, p place) (condition, error) {
	operand := c.doc.nodes[at]
	compiled := condition{op: op, path: path}
	if op == opIn || op == opNin {
		if operand.kind != kindArray {
			return condition{}, p.errorf("needs an array of plain values, got %s", operand.kind)
		}
		for element := at + 1; element < operand.next; element = c.doc.nodes[element].next {
			v, err := c.value(element, p)
			if err != nil {
				return condition{}, err
			}
			compiled.operands = append(compiled.operands, v)
		}
		if len(compiled.operands) == 0 {
			return condition{}, p.errorf("needs at least one value")
		}
		return compiled, nil
	}
	v, err := c.value(at, p)
	if err != nil {
		return condition{}, err
	}
	compiled.operands = []value{v}
	return compiled, checkOperand(op, v.kind, p)
}

func checkOperand(op operator, k kind, p place) error {
	switch op {
	case opGt, opGte, opLt, opLte:
		if k != kindNumber && k != kindString {
			return p.errorf("needs a number or a string, got %s", k)
		}
	case opExists:
		if k != kindBool {
			return p.errorf("needs true or false, got %s", k)
		}
	case opPrefix:
		if k != kindString {
			return p.errorf("needs a string, got %s", k)
		}
	}
	return nil
}

func (c *compiler) value(at int32, p place) (value, error) {
	if c.comparisons++; c.comparisons > MaxConditions {
		return value{}, p.errorf("is one comparison too many, the limit is %d", MaxConditions)
	}
	n := &c.doc.nodes[at]
	v := value{kind: n.kind}
	switch n.kind {
	case kindBool:
		v.yes = c.doc.data[n.start] == 't'
	case kindString:
		v.text = c.doc.text(n)
	case kindNumber:
		v.number = parseDecimal(c.doc.bytes(n))
		if v.number.exp > maxExponent || v.number.exp < -maxExponent {
			return value{}, p.errorf("has a number with an exponent beyond ±%d", maxExponent)
		}
	case kindArray, kindObject:
		return value{}, p.errorf("needs a plain value, got %s", n.kind)
	}
	return v, nil
}

// splitPath splits at dots and resolves the escapes \. \\ and \$.
func splitPath(path string) (segments []string, problem string) {
	var segment strings.Builder
	for i := 0; i < len(path); i++ {
		switch c := path[i]; c {
		case '.':
			segments = append(segments, segment.String())
			segment.Reset()
		case '\\':
			i++
			if i == len(path) || !strings.ContainsRune(`.\$`, rune(path[i])) {
				return nil, `has a backslash that is not followed by a dot, a backslash or a dollar sign`
			}
			segment.WriteByte(path[i])
		default:
			segment.WriteByte(c)
		}
	}
	segments = append(segments, segment.String())
	if slices.Contains(segments, "") {
		return nil, "is a path with an empty segment"
	}
	return segments, ""
}
