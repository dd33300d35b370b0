package webhook

import (
	"context"
	"time"

	"github.com/google/uuid"
)

// AttemptFollower is what the stores that keep their tables in a database of SQL have
// beside the [Store]: what a program needs that shows attempts as they happen.
type AttemptFollower interface {
	// RecentAttempts returns attempts that started at or after p.Since, the latest
	// first. An attempt is there when its result has been recorded, so whoever looks
	// again must look back as far as attempts take. It costs about as much as there are
	// attempts since.
	RecentAttempts(ctx context.Context, p RecentAttemptsParams) ([]RecentAttempt, error)
}

// RecentAttemptsParams says which attempts are looked for.
type RecentAttemptsParams struct {
	Scope Scope
	// EndpointID, unless zero, asks for attempts to one endpoint.
	EndpointID uuid.UUID
	Since      time.Time
	Limit      int // 0 or less means none
}

// RecentAttempt is an attempt and the type of its event.
type RecentAttempt struct {
	Attempt
	EventType string
}
