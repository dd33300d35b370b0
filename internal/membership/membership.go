// Package membership assigns keys to members by rendezvous hashing: every member
// computes the same owner without asking anybody, and when one joins or leaves,
// only the keys that it gets or had change hands.
package membership

import (
	"encoding/binary"

	"github.com/google/uuid"
)

// Owner returns the member that owns the key: the one whose combined hash is the
// highest. All members must be given the same list, in any order. It returns the
// zero id when there are no members.
func Owner(members []uuid.UUID, key string) uuid.UUID {
	var owner uuid.UUID
	if len(members) == 0 {
		return owner
	}
	if len(members) == 1 {
		return members[0]
	}
	h := hash(key)
	var best uint64
	for i, m := range members {
		score := combine(h, m)
		if i == 0 || score > best || score == best && less(owner, m) {
			owner, best = m, score
		}
	}
	return owner
}

// hash is FNV-1a: the same in every process and every version, which a seeded
// hash is not.
func hash(s string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	return h
}

// combine mixes a key's hash with a member's id so that each pair gets a number
// of its own; the steps are the finaliser of SplitMix64.
func combine(h uint64, m uuid.UUID) uint64 {
	x := mix(h ^ binary.BigEndian.Uint64(m[:8]))
	return mix(x ^ binary.BigEndian.Uint64(m[8:]))
}

func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

func less(a, b uuid.UUID) bool {
	x, y := binary.BigEndian.Uint64(a[:8]), binary.BigEndian.Uint64(b[:8])
	if x != y {
		return x < y
	}
	return binary.BigEndian.Uint64(a[8:]) < binary.BigEndian.Uint64(b[8:])
}
