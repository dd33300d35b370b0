package webhook

import (
	"crypto/sha256"
	"encoding/binary"
	"time"

	"github.com/google/uuid"
)

// keyedHours is for how many hours at least an idempotency key of an endpoint or of a
// replay job is known.
const keyedHours = 24

// keyedIDs returns the ids that a thing with an idempotency key may have: first the one
// that it gets at now, then those that it got in the hours before. They are UUIDs of
// version 7, whose time is the hour, and whose random bits come from the key: twins get
// the same id, and the store takes one of them. Nothing else has to be kept.
//
// Two requests that are under way at once while one hour turns into the next make two
// things; that is the price.
func keyedIDs(kind, tenant, key string, now time.Time) []uuid.UUID {
	h := sha256.New()
	for _, part := range []string{kind, tenant, key} {
		_, _ = h.Write(binary.AppendUvarint(nil, uint64(len(part))))
		_, _ = h.Write([]byte(part))
	}
	sum := h.Sum(nil)
	hour := now.Truncate(time.Hour)
	ids := make([]uuid.UUID, keyedHours+1)
	for i := range ids {
		var ms [8]byte
		binary.BigEndian.PutUint64(ms[:], uint64(hour.Add(-time.Duration(i)*time.Hour).UnixMilli()))
		copy(ids[i][:6], ms[2:])
		copy(ids[i][6:], sum)
		ids[i][6] = ids[i][6]&0x0f | 0x70
		ids[i][8] = ids[i][8]&0x3f | 0x80
	}
	return ids
}
