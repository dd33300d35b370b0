package crash_test

import (
	"context"
	"net/http"
	"strings"

	"github.com/google/uuid"

	"github.com/outhook/webhook"
)

// point is a place on the way of an event where a process may end.
type point string

// The points, in the order in which an event passes them.
const (
	afterCommit point = "after commit"
	midFanOut   point = "mid fan-out"  // inside the transaction
	afterClaim  point = "after claim"  // leased, nothing sent
	beforeSend  point = "before send"  // the lease was found good, nothing written
	afterBytes  point = "after bytes"  // the receiver has it, its answer is not read
	beforeFlush point = "before flush" // answered, the result not written
)

// watch is told when a process passes a point, with the ids of the events.
type watch struct {
	at        func(p point, events string)
	takeovers func(n int)
}

// watched is a store that tells the watch of what happens.
func watched[Tx any](store webhook.Store[Tx], w watch) webhook.Store[Tx] {
	if w.at == nil {
		return store
	}
	s := watchedStore[Tx]{Store: store, watch: w}
	notifier, notifies := store.(webhook.Notifier)
	cluster, clusters := store.(clusterStore)
	switch {
	case notifies && clusters:
		return struct {
			watchedStore[Tx]
			webhook.Notifier
			clusterStore
		}{s, notifier, cluster}
	case notifies:
		return struct {
			watchedStore[Tx]
			webhook.Notifier
		}{s, notifier}
	case clusters:
		return struct {
			watchedStore[Tx]
			clusterStore
		}{s, cluster}
	}
	return s
}

// clusterStore is what a store has for several dispatchers.
type clusterStore interface {
	webhook.ClusterStore
	webhook.SplitStore
}

type watchedStore[Tx any] struct {
	webhook.Store[Tx]

	watch watch
}

func (s watchedStore[Tx]) FanOut(ctx context.Context, p webhook.FanOutParams) (webhook.FanOutResult, error) {
	p.Matcher = watchedMatcher{p.Matcher, s.watch}
	return s.Store.FanOut(ctx, p)
}

type watchedMatcher struct {
	webhook.Matcher

	watch watch
}

func (m watchedMatcher) Match(dst []uuid.UUID, e *webhook.EventRecord, after uuid.UUID, limit int) ([]uuid.UUID, bool) {
	m.watch.at(midFanOut, e.ID.String())
	return m.Matcher.Match(dst, e, after, limit)
}

func (s watchedStore[Tx]) Claim(ctx context.Context, p webhook.ClaimParams) ([]webhook.Claimed, error) {
	claimed, err := s.Store.Claim(ctx, p)
	var events []string
	takeovers := 0
	for i := range claimed {
		events = append(events, claimed[i].Event.ID.String())
		if claimed[i].TakenOver {
			takeovers++
		}
	}
	if takeovers > 0 {
		s.watch.takeovers(takeovers)
	}
	if len(events) > 0 {
		s.watch.at(afterClaim, strings.Join(events, ","))
	}
	return claimed, err
}

func (s watchedStore[Tx]) Record(ctx context.Context, p webhook.RecordParams) (webhook.RecordResult, error) {
	var events []string
	for i := range p.Results {
		if a := p.Results[i].Attempt; a != nil {
			events = append(events, a.EventID.String())
		}
	}
	if len(events) > 0 {
		s.watch.at(beforeFlush, strings.Join(events, ","))
	}
	return s.Store.Record(ctx, p)
}

// senderHeader tells a receiver which process sent a request.
const senderHeader = "X-Sender"

// watchedTransport tells the watch of requests, and the receiver of the sender.
type watchedTransport struct {
	http.RoundTripper

	watch  watch
	sender string
}

func (t watchedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	t.watch.at(beforeSend, r.Header.Get("webhook-id"))
	r = r.Clone(r.Context())
	r.Header.Set(senderHeader, t.sender)
	return t.RoundTripper.RoundTrip(r)
}
