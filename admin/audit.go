package admin

import (
	"context"
	"encoding/json"
	"net"
	"time"

	"github.com/google/uuid"
)

// Action is something that changes data, as audit records name it.
type Action string

// The actions.
const (
	ActionEndpointCreate       Action = "endpoint.create"
	ActionEndpointUpdate       Action = "endpoint.update"
	ActionEndpointDelete       Action = "endpoint.delete"
	ActionEndpointPause        Action = "endpoint.pause"
	ActionEndpointResume       Action = "endpoint.resume"
	ActionEndpointDisable      Action = "endpoint.disable"
	ActionEndpointEnable       Action = "endpoint.enable"
	ActionEndpointTest         Action = "endpoint.test"
	ActionEndpointRotateSecret Action = "endpoint.rotate_secret"
	ActionEventEnqueue         Action = "event.enqueue"
	ActionEventReplay          Action = "event.replay"
	ActionDeliveryRetry        Action = "delivery.retry"
	ActionDeliveryCancel       Action = "delivery.cancel"
	ActionReplayCreate         Action = "replay.create"
	ActionReplayCancel         Action = "replay.cancel"
)

// AuditRecord tells of one change that somebody made. It never holds a secret, the
// value of a header, a payload, or the path and query of a URL.
type AuditRecord struct {
	Action Action
	// Actor is the name that Authorize gave.
	Actor string
	// Operator is true of an operator, and false of one of the tenant's members.
	Operator bool
	// Tenant is whose object was changed.
	Tenant string
	// Object is the id of the endpoint, event, delivery or replay.
	Object uuid.UUID
	// Before and After are the object in the words of the JSON API; nil where there
	// was none, or where it says nothing that Action does not.
	Before, After json.RawMessage
	// RemoteAddr is the address that the request came from, without the port. Behind a
	// proxy it is the proxy's, unless a middleware of the host's sets
	// [net/http.Request.RemoteAddr].
	RemoteAddr string
	// At is this machine's time.
	At time.Time
}

// audit hands a record of a change to the host. before and after are shapes of the
// JSON API, or nil.
func (v *visit) audit(action Action, tenant string, object uuid.UUID, before, after any) {
	if v.handler.audit == nil {
		return
	}
	host, _, err := net.SplitHostPort(v.r.RemoteAddr)
	if err != nil {
		host = v.r.RemoteAddr
	}
	record := AuditRecord{
		Action: action, Actor: v.principal.name, Operator: v.principal.operator, Tenant: tenant, Object: object,
		Before: auditJSON(before), After: auditJSON(after), RemoteAddr: host, At: time.Now().UTC(),
	}
	defer func() {
		if p := recover(); p != nil {
			v.handler.log.ErrorContext(v.ctx(), "webhook admin: the audit callback panicked", "action", string(action), "object", object, "panic", p)
		}
	}()
	// What has happened is told even to a callback that writes to a database while
	// the browser hangs up.
	v.handler.audit(context.WithoutCancel(v.ctx()), record)
}

func auditJSON(shape any) json.RawMessage {
	if shape == nil {
		return nil
	}
	doc, err := json.Marshal(shape)
	if err != nil {
		return nil
	}
	return doc
}
