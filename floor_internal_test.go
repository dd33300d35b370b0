package webhook

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"

	"github.com/outhook/webhook/internal/scheduler"
)

// A claim may have missed what was told while it was under way.
func TestAFloorIsNotRaisedAboveWhatWasToldDuringTheClaim(t *testing.T) {
	t.Parallel()
	begun := time.Now()
	at := func(seconds int) time.Time { return begun.Add(time.Duration(seconds) * time.Second) }
	for name, tc := range map[string]struct {
		before, during []int
		want           int
	}{
		"nothing":            {want: 10},
		"before it":          {before: []int{5}, want: 10},
		"what is new":        {during: []int{12}, want: 10},
		"what was due first": {before: []int{1}, during: []int{8, 6, 7}, want: 6},
		"below the floor":    {during: []int{-60}, want: -60},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := floors{LaneFirst: {at: begun}}
			for _, s := range tc.before {
				f[LaneFirst].told(at(s))
			}
			f.begin()
			for _, s := range tc.during {
				f[LaneFirst].told(at(s))
			}
			f[LaneFirst].raise(at(10))
			assert.Equal(t, at(tc.want), f[LaneFirst].at)
		})
	}
}

// While it was another's, that one may have left something.
func TestAClaimSaysNothingAboutAnEndpointThatWasGivenUpMeanwhile(t *testing.T) {
	t.Parallel()
	id := uuid.New()
	before := &place{taken: true}
	ask := []asked{{Grant: scheduler.Grant{Endpoint: id, Oldest: 1}, place: before}}
	for name, now := range map[string]*place{"taken up again": {taken: true}, "kept": before} {
		l := &loop{places: map[uuid.UUID]*place{id: now}}
		l.raiseFloors(&claimReply{asked: ask, at: time.Now()}, nil)
		assert.Equal(t, now == before, !now.floors[LaneFirst].at.IsZero(), name)
	}
	l := &loop{places: map[uuid.UUID]*place{}}
	assert.NotPanics(t, func() { l.raiseFloors(&claimReply{asked: ask, at: time.Now()}, nil) })
}
