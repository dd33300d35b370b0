package webhook

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"time"

	"github.com/google/uuid"
)

// A cursor is a position and a mark of the list that it is a position in, so that
// one of another tenant or filter is refused instead of listing something else. It
// grants nothing: whoever makes one up gets a page of the list that he asked for.

const (
	cursorVersion = 1
	markBytes     = 8
)

// listMark tells lists apart. Its parts go in one after the other, each with its length.
type listMark struct{ parts bytes.Buffer }

func newListMark(kind string, scope Scope) *listMark {
	m := new(listMark)
	tenant, limited := scope.Tenant()
	m.add(kind)
	m.flag(limited)
	m.add(tenant)
	return m
}

func (m *listMark) add(s string) {
	m.parts.Write(binary.AppendUvarint(nil, uint64(len(s))))
	m.parts.WriteString(s)
}

func (m *listMark) flag(set bool) {
	if set {
		m.add("1")
		return
	}
	m.add("")
}

func (m *listMark) id(id uuid.UUID) { m.add(string(id[:])) }

func (m *listMark) time(t time.Time) {
	if t.IsZero() {
		m.add("")
		return
	}
	m.add(t.UTC().Format(time.RFC3339Nano))
}

func (m *listMark) sum() []byte {
	sum := sha256.Sum256(m.parts.Bytes())
	return sum[:markBytes]
}

// cursor makes the cursor of a position.
func (m *listMark) cursor(position []byte) string {
	b := append([]byte{cursorVersion}, m.sum()...)
	return base64.RawURLEncoding.EncodeToString(append(b, position...))
}

// position reads a cursor. Positions of one kind of list have one length.
func (m *listMark) position(field, cursor string, length int) ([]byte, error) {
	b, err := base64.RawURLEncoding.Strict().DecodeString(cursor)
	if err != nil || len(b) != 1+markBytes+length || b[0] != cursorVersion {
		return nil, &InvalidError{Field: field, Problem: "is not a cursor", cause: ErrCursor}
	}
	if !bytes.Equal(b[1:1+markBytes], m.sum()) {
		return nil, &InvalidError{Field: field, Problem: "is the cursor of another list: the tenant or the filter is not the same", cause: ErrCursor}
	}
	return b[1+markBytes:], nil
}
