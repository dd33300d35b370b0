package webhook

import (
	"encoding/json"
	"time"

	"github.com/google/uuid"
)

// NoticeKind says what a [Notice] is about. It is the type of the operational event,
// too.
type NoticeKind string

// The kinds of notices (docs/design.md §6).
const (
	// NoticeFailing: a streak of failures has begun. A streak ends with a success;
	// another is told of 10 minutes after the beginning of the last one at the
	// earliest, so that an endpoint which fails now and then is not told of all the
	// time.
	NoticeFailing NoticeKind = "endpoint.failing"
	// NoticeFailing24h: the streak has lasted 24 hours.
	NoticeFailing24h NoticeKind = "endpoint.failing_24h"
	// NoticeRecovered: the streak has ended.
	NoticeRecovered NoticeKind = "endpoint.recovered"
	// NoticeDisabled: the endpoint was disabled, by whomever; Reason says why.
	NoticeDisabled NoticeKind = "endpoint.disabled"
	// NoticeDegraded: under 80 % of at least 20 attempts in 4 hours succeeded. It is
	// told again when it happens again after 90 % did.
	NoticeDegraded NoticeKind = "endpoint.degraded"
	// NoticeConfigurationSuspected: nearly all failures are the same 4xx; see
	// [ConfigurationError].
	NoticeConfigurationSuspected NoticeKind = "endpoint.configuration_suspected"
	// NoticeFlapping: the circuit opened again shortly after it had closed. At most
	// once an hour.
	NoticeFlapping NoticeKind = "endpoint.flapping"
	// NoticeShedding: new deliveries are recorded as shed, since the endpoint cannot
	// keep up.
	NoticeShedding NoticeKind = "endpoint.shedding"
	// NoticeDead: a delivery is dead. It is told of the first one of a streak of
	// failures; those that follow are counted in [EndpointHealth.DeadCount] and
	// listed by [Deliveries.List].
	NoticeDead NoticeKind = "delivery.dead"
	// NoticeSecretOld: the signing secret is 90 days old.
	NoticeSecretOld NoticeKind = "secret.old"
)

// Notice is something about an endpoint that somebody should know. Of an endpoint,
// kind and streak there is one, however many dispatchers run and whenever they start.
type Notice struct {
	// ID is stable: a callback that is called again for a notice sees the same one,
	// and an operational event has it as its id.
	ID         uuid.UUID
	Kind       NoticeKind
	EndpointID uuid.UUID
	Tenant     string
	// Streak is when that which the notice is about began: the streak of failures,
	// the disabling, the secret.
	Streak time.Time
	// CreatedAt is when it was noticed.
	CreatedAt time.Time

	NoticeDetail
}

// NoticeDetail is what there is to say. Fields that say nothing about the kind are
// zero.
type NoticeDetail struct {
	// Reason says in a few words why, for people.
	Reason string `json:"reason,omitzero"`
	// Status and Class are those of the latest failure, or of what is suspected.
	Status int        `json:"status,omitzero"`
	Class  ErrorClass `json:"class,omitzero"`
	// ConsecutiveFailures counts the attempts since the latest success.
	ConsecutiveFailures int64 `json:"consecutive_failures,omitzero"`
	// Dead counts the deliveries that had died when it was noticed.
	Dead int64 `json:"dead,omitzero"`
	// Score is the health score, where the notice is about one.
	Score int `json:"score,omitzero"`
}

func noticeFromRecord(r *NoticeRecord) Notice {
	n := Notice{
		ID: r.ID, Kind: r.Kind, EndpointID: r.EndpointID, Tenant: r.Tenant, Streak: r.Streak, CreatedAt: r.CreatedAt,
	}
	// Unreadable detail, which only a hand in the database can make, is none.
	_ = json.Unmarshal(r.Detail, &n.NoticeDetail)
	return n
}
