package webhook

import (
	"context"

	"github.com/google/uuid"
)

// PayloadRefStore keeps account of payloads that are kept in a [PayloadStore]. An event
// whose payload is kept there has a PayloadRef, and Maintain and EraseTenant, where they
// remove such an event, write down in the same transaction that its payload is to be
// removed as well.
type PayloadRefStore interface {
	// GonePayloads returns payloads of events that were removed, in ascending order of
	// the events' ids after one, until they are forgotten.
	GonePayloads(ctx context.Context, after uuid.UUID, limit int) ([]PayloadKey, error)

	// ForgetPayloads forgets payloads that have been removed.
	ForgetPayloads(ctx context.Context, events []uuid.UUID) error

	// AbsentEvents returns those of up to 1,000 ids of which no event is stored. An
	// event of a transaction that has not ended is absent.
	AbsentEvents(ctx context.Context, ids []uuid.UUID) ([]uuid.UUID, error)
}
