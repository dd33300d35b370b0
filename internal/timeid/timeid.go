// Package timeid makes ids (UUID version 7) from times that are given, so that ids
// and times tell the same order and a range of times is a range of ids. The time of
// a delivery is the database's, which the machine's clock may be minutes away from.
package timeid

import (
	"crypto/rand"
	"encoding/binary"
	"sync"
	"time"

	"github.com/google/uuid"
)

// Slack is how far the time in an id may be from the one that it was made from.
const Slack = time.Second

// The stamp of an id is its 48 bits of milliseconds and, below them, the 12 bits that
// RFC 9562 §6.2 (method 3) gives to the fraction, in 256ths of a microsecond.
const fractionBits = 12

const slackStamps = uint64(Slack/time.Millisecond) << fractionBits

// Generator makes ids each of which is greater than the one before, as long as the
// times that it is given do not go back by more than Slack. Its zero value works, and
// it is safe for concurrent use.
type Generator struct {
	mu   sync.Mutex
	last uint64 // stamp; protected by mu
}

// New returns n ids, in ascending order.
func (g *Generator) New(now time.Time, n int) ([]uuid.UUID, error) {
	ids := make([]uuid.UUID, n)
	random := make([]byte, 8*n)
	if _, err := rand.Read(random); err != nil {
		return nil, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for i := range ids {
		stamp := stampOf(now)
		if stamp <= g.last && g.last-stamp < slackStamps {
			stamp = g.last + 1
		}
		g.last = stamp
		put(&ids[i], stamp)
		copy(ids[i][8:], random[8*i:8*i+8])
		ids[i][8] = ids[i][8]&0x3f | 0x80 // the variant
	}
	return ids, nil
}

// First returns the least id that may have been made from a time, or a later one.
func First(t time.Time) uuid.UUID {
	var id uuid.UUID
	put(&id, stampOf(t.Add(-Slack)))
	return id
}

// End returns an id that is greater than all that were made from times before t.
func End(t time.Time) uuid.UUID {
	var id uuid.UUID
	put(&id, stampOf(t.Add(Slack)))
	return id
}

func stampOf(t time.Time) uint64 {
	ms := t.UnixMilli()
	if ms < 0 {
		return 0
	}
	fraction := uint64(t.Nanosecond()%int(time.Millisecond)) >> 8
	return uint64(ms)<<fractionBits | fraction
}

func put(id *uuid.UUID, stamp uint64) {
	var ms [8]byte
	binary.BigEndian.PutUint64(ms[:], stamp>>fractionBits)
	copy(id[:6], ms[2:])
	fraction := uint16(stamp & (1<<fractionBits - 1))
	binary.BigEndian.PutUint16(id[6:8], fraction|0x7000) // version 7
}
