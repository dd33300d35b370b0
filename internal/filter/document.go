package filter

import (
	"bytes"
	"encoding/json"
	"math"
	"strconv"
)

// Document is a payload prepared for evaluation: one pass over the bytes finds where
// each value begins and ends, and any number of filters are then evaluated on that. The
// zero value is an invalid document. It is not safe for concurrent use.
type Document struct {
	data  []byte
	nodes []node // the values in the order in which they begin; empty means invalid
	open  []int32
}

type kind uint8

const (
	kindNull kind = iota
	kindBool
	kindNumber
	kindString
	kindArray
	kindObject
)

func (k kind) String() string {
	return [...]string{"null", "a boolean", "a number", "a string", "an array", "an object"}[k]
}

// node is one value, or the key of an object's member, which precedes its value.
type node struct {
	start, end int32 // of the bytes; of a string without its quotes
	next       int32 // the node after all that this one contains
	kind       kind
	escaped    bool // a string with a backslash in it
}

// Reset makes d the document of the payload, which must not change while d is in use.
// It reports whether the payload is valid JSON of less than 2 GiB.
func (d *Document) Reset(payload []byte) bool {
	d.data, d.nodes, d.open = payload, d.nodes[:0], d.open[:0]
	if len(payload) > math.MaxInt32-1 || !json.Valid(payload) {
		return false
	}
	d.index()
	return true
}

// index fills nodes. It relies on the payload being valid, so that only the bytes that
// begin or end something need a look.
func (d *Document) index() {
	for i := 0; i < len(d.data); {
		switch c := d.data[i]; c {
		case ' ', '\t', '\r', '\n', ',', ':':
			i++
		case '{', '[':
			k := kindArray
			if c == '{' {
				k = kindObject
			}
			d.open = append(d.open, int32(len(d.nodes)))
			d.nodes = append(d.nodes, node{start: int32(i), kind: k})
			i++
		case '}', ']':
			i++
			last := len(d.open) - 1
			container := &d.nodes[d.open[last]]
			container.end, container.next = int32(i), int32(len(d.nodes))
			d.open = d.open[:last]
		case '"':
			end, escaped := d.stringEnd(i + 1)
			d.add(node{start: int32(i + 1), end: int32(end), kind: kindString, escaped: escaped})
			i = end + 1
		default:
			end := d.wordEnd(i)
			d.add(node{start: int32(i), end: int32(end), kind: wordKind(c)})
			i = end
		}
	}
}

func (d *Document) add(n node) {
	n.next = int32(len(d.nodes) + 1)
	d.nodes = append(d.nodes, n)
}

// stringEnd returns the index of the closing quote of the string that begins at i.
func (d *Document) stringEnd(i int) (end int, escaped bool) {
	for {
		i += bytes.IndexAny(d.data[i:], `"\`)
		if d.data[i] == '"' {
			return i, escaped
		}
		escaped = true
		i += 2
	}
}

func (d *Document) wordEnd(i int) int {
	for i < len(d.data) {
		switch d.data[i] {
		case ' ', '\t', '\r', '\n', ',', ']', '}':
			return i
		}
		i++
	}
	return i
}

func wordKind(first byte) kind {
	switch first {
	case 'n':
		return kindNull
	case 't', 'f':
		return kindBool
	default:
		return kindNumber
	}
}

func (d *Document) valid() bool { return len(d.nodes) > 0 }

func (d *Document) bytes(n *node) []byte { return d.data[n.start:n.end] }

// text decodes a string.
func (d *Document) text(n *node) string {
	if !n.escaped {
		return string(d.bytes(n))
	}
	var s string
	_ = json.Unmarshal(d.data[n.start-1:n.end+1], &s) // it is valid
	return s
}

// is compares a string with s, without decoding it where that can be.
func (d *Document) is(n *node, s string) bool {
	if !n.escaped {
		return string(d.bytes(n)) == s
	}
	return d.text(n) == s
}

// find follows the path from the root; nil means that it leads nowhere.
func (d *Document) find(path []string) *node {
	at := int32(0)
	for _, segment := range path {
		var ok bool
		switch d.nodes[at].kind {
		case kindObject:
			at, ok = d.member(at, segment)
		case kindArray:
			at, ok = d.element(at, segment)
		}
		if !ok {
			return nil
		}
	}
	return &d.nodes[at]
}

// member returns the last member of that name, as encoding/json does.
func (d *Document) member(object int32, name string) (value int32, found bool) {
	for key := object + 1; key < d.nodes[object].next; key = d.nodes[key+1].next {
		if d.is(&d.nodes[key], name) {
			value, found = key+1, true
		}
	}
	return value, found
}

func (d *Document) element(array int32, segment string) (value int32, found bool) {
	index, err := strconv.ParseUint(segment, 10, 31)
	if err != nil || len(segment) > 1 && segment[0] == '0' {
		return 0, false
	}
	for at := array + 1; at < d.nodes[array].next; at = d.nodes[at].next {
		if index == 0 {
			return at, true
		}
		index--
	}
	return 0, false
}
