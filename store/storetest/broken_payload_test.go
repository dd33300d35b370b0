package storetest

import (
	"context"
	"slices"

	"github.com/google/uuid"

	"github.com/outhook/webhook"
)

// payloadHooks are those of [webhook.PayloadRefStore].
type payloadHooks struct {
	gonePayloads   func(context.Context, uuid.UUID, int) ([]webhook.PayloadKey, error)
	forgetPayloads func(context.Context, []uuid.UUID) error
	absentEvents   func(context.Context, []uuid.UUID) ([]uuid.UUID, error)
}

func (s *store) GonePayloads(ctx context.Context, after uuid.UUID, limit int) ([]webhook.PayloadKey, error) {
	return s.gonePayloads(ctx, after, limit)
}

func (s *store) ForgetPayloads(ctx context.Context, events []uuid.UUID) error {
	return s.forgetPayloads(ctx, events)
}

func (s *store) AbsentEvents(ctx context.Context, ids []uuid.UUID) ([]uuid.UUID, error) {
	return s.absentEvents(ctx, ids)
}

func brokenPayloads() []broken {
	const (
		comesBack = "what a payload must be comes back with its event"
		known     = "the payload of a removed event is known until it is forgotten"
		erased    = "the payloads of an erased tenant are to be removed"
		absent    = "an event is absent until its transaction has committed"
	)
	return []broken{
		{"loses what the payload must be", func(s *store) {
			s.insertEvents = func(ctx context.Context, tx memTx, events []webhook.EventRecord) ([]webhook.EnqueueResult, error) {
				events = slices.Clone(events)
				for i := range events {
					events[i].PayloadRef = nil
				}
				return s.Store.InsertEvents(ctx, tx, events)
			}
		}, []string{comesBack, known, erased}},
		{"claims without what the payload must be", func(s *store) {
			s.claim = func(ctx context.Context, p webhook.ClaimParams) ([]webhook.Claimed, error) {
				claimed, err := s.Store.Claim(ctx, p)
				for i := range claimed {
					claimed[i].Event.PayloadRef = nil
				}
				return claimed, err
			}
		}, []string{comesBack}},
		{"knows nothing of removed payloads", func(s *store) {
			s.gonePayloads = func(context.Context, uuid.UUID, int) ([]webhook.PayloadKey, error) { return nil, nil }
		}, []string{known, erased}},
		{"lists removed payloads from the beginning each time", func(s *store) {
			s.gonePayloads = func(ctx context.Context, _ uuid.UUID, limit int) ([]webhook.PayloadKey, error) {
				return s.Store.GonePayloads(ctx, uuid.Nil, limit)
			}
		}, []string{known}},
		{"forgets no payload", func(s *store) {
			s.forgetPayloads = func(context.Context, []uuid.UUID) error { return nil }
		}, []string{known}},
		{"finds every event absent", func(s *store) {
			s.absentEvents = func(_ context.Context, ids []uuid.UUID) ([]uuid.UUID, error) { return ids, nil }
		}, []string{absent}},
		{"finds no event absent", func(s *store) {
			s.absentEvents = func(context.Context, []uuid.UUID) ([]uuid.UUID, error) { return nil, nil }
		}, []string{absent}},
	}
}
