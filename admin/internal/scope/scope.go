// Package scope is the only way from the admin handlers to data. A handler gets a
// [View] of what its principal may see and change, and no method of it takes a
// tenant's word for anything: a tenant leak would have to be written here.
package scope

import (
	"context"

	"github.com/google/uuid"

	"github.com/outhook/webhook"
)

// Hooks is what views are views of.
type Hooks interface {
	Backend() webhook.Backend
	Deliveries() *webhook.Deliveries
	Endpoints() *webhook.Endpoints
	Events() *webhook.Events
	Health() *webhook.Health
	Replays() *webhook.Replays
}

// Source makes views.
type Source struct{ hooks Hooks }

// NewSource returns a source of views of hooks.
func NewSource(hooks Hooks) *Source { return &Source{hooks: hooks} }

// Everything returns an operator's view: all tenants.
func (s *Source) Everything() *View { return &View{hooks: s.hooks, scope: webhook.AllTenants()} }

// Tenant returns the view of one tenant.
func (s *Source) Tenant(tenant string) *View {
	return &View{hooks: s.hooks, scope: webhook.TenantScope(tenant)}
}

// View is what one principal may see and change. Whatever lies outside of it gives
// [webhook.ErrNotFound], exactly as what does not exist.
type View struct {
	hooks Hooks
	scope webhook.Scope
}

// Tenant returns the tenant that the view is limited to; ok is false for an operator's.
func (v *View) Tenant() (tenant string, ok bool) { return v.scope.Tenant() }

// Within narrows the view to one tenant. It can only narrow: from a tenant's view
// there is no way to another tenant, and ok is false.
func (v *View) Within(tenant string) (narrow *View, ok bool) {
	if !v.scope.Includes(tenant) {
		return nil, false
	}
	return &View{hooks: v.hooks, scope: webhook.TenantScope(tenant)}, true
}

// CreateEndpoint makes an endpoint. A tenant's view makes it for that tenant,
// whatever p says.
func (v *View) CreateEndpoint(ctx context.Context, p webhook.EndpointParams) (webhook.Endpoint, error) {
	if tenant, ok := v.scope.Tenant(); ok {
		p.Tenant = tenant
	}
	return v.hooks.Endpoints().Create(ctx, p)
}

// Endpoint returns an endpoint.
func (v *View) Endpoint(ctx context.Context, id uuid.UUID) (webhook.Endpoint, error) {
	return v.hooks.Endpoints().Get(ctx, v.scope, id)
}

// Endpoints lists endpoints in the order of their creation.
func (v *View) Endpoints(ctx context.Context, after uuid.UUID, limit int) ([]webhook.Endpoint, error) {
	return v.hooks.Endpoints().List(ctx, webhook.ListEndpointsParams{Scope: v.scope, After: after, Limit: limit})
}

// UpdateEndpoint changes an endpoint.
func (v *View) UpdateEndpoint(ctx context.Context, id uuid.UUID, u webhook.EndpointUpdate) (webhook.Endpoint, error) {
	return v.hooks.Endpoints().Update(ctx, v.scope, id, u)
}

// DeleteEndpoint deletes an endpoint.
func (v *View) DeleteEndpoint(ctx context.Context, id uuid.UUID) error {
	return v.hooks.Endpoints().Delete(ctx, v.scope, id)
}

// PauseEndpoint pauses an endpoint.
func (v *View) PauseEndpoint(ctx context.Context, id uuid.UUID, reason string) (webhook.Endpoint, error) {
	return v.hooks.Endpoints().Pause(ctx, v.scope, id, reason)
}

// ResumeEndpoint ends a pause.
func (v *View) ResumeEndpoint(ctx context.Context, id uuid.UUID) (webhook.Endpoint, error) {
	return v.hooks.Endpoints().Resume(ctx, v.scope, id)
}

// DisableEndpoint disables an endpoint.
func (v *View) DisableEndpoint(ctx context.Context, id uuid.UUID, reason string) (webhook.Endpoint, error) {
	return v.hooks.Endpoints().Disable(ctx, v.scope, id, reason)
}

// EnableEndpoint ends a disabling.
func (v *View) EnableEndpoint(ctx context.Context, id uuid.UUID) (webhook.Endpoint, error) {
	return v.hooks.Endpoints().Enable(ctx, v.scope, id)
}

// SendTest sends a test event to an endpoint.
func (v *View) SendTest(ctx context.Context, id uuid.UUID, eventType string) (webhook.Attempt, error) {
	return v.hooks.Endpoints().SendTest(ctx, v.scope, id, eventType)
}

// RotateSecret gives an endpoint a new secret.
func (v *View) RotateSecret(ctx context.Context, id uuid.UUID, o webhook.RotateOptions) (webhook.Endpoint, error) {
	return v.hooks.Endpoints().RotateSecret(ctx, v.scope, id, o)
}

// Health tells how an endpoint fares.
func (v *View) Health(ctx context.Context, endpoint uuid.UUID) (webhook.EndpointHealth, error) {
	return v.hooks.Health().Endpoint(ctx, v.scope, endpoint)
}

// Healths tells how endpoints fare. The view's scope replaces p's.
func (v *View) Healths(ctx context.Context, p webhook.ListHealthParams) ([]webhook.EndpointHealth, error) {
	p.Scope = v.scope
	return v.hooks.Health().List(ctx, p)
}

// Notices lists notices about endpoints, newest first. The view's scope replaces p's.
func (v *View) Notices(ctx context.Context, p webhook.ListNoticesParams) ([]webhook.Notice, error) {
	p.Scope = v.scope
	return v.hooks.Health().Notices(ctx, p)
}

// Overview sums up how all that is in the view fares. The view's scope replaces p's.
func (v *View) Overview(ctx context.Context, p webhook.OverviewParams) (webhook.HealthOverview, error) {
	p.Scope = v.scope
	return v.hooks.Health().Overview(ctx, p)
}

// Counters lists the counters of endpoints by day. The view's scope replaces p's.
func (v *View) Counters(ctx context.Context, p webhook.ListCountersParams) ([]webhook.DayCounters, error) {
	p.Scope = v.scope
	return v.hooks.Backend().ListCounters(ctx, p)
}

// Event returns an event with its payload.
func (v *View) Event(ctx context.Context, id uuid.UUID) (webhook.EventStatus, error) {
	return v.hooks.Events().Get(ctx, v.scope, id)
}

// Events lists events without their payloads. The view's scope replaces q's.
func (v *View) Events(ctx context.Context, q webhook.EventQuery) (webhook.EventPage, error) {
	q.Scope = v.scope
	return v.hooks.Events().List(ctx, q)
}

// Delivery returns a delivery.
func (v *View) Delivery(ctx context.Context, id uuid.UUID) (webhook.Delivery, error) {
	return v.hooks.Deliveries().Get(ctx, v.scope, id)
}

// Deliveries lists deliveries, newest first. The view's scope replaces q's.
func (v *View) Deliveries(ctx context.Context, q webhook.DeliveryQuery) (webhook.DeliveryPage, error) {
	q.Scope = v.scope
	return v.hooks.Deliveries().List(ctx, q)
}

// WaitReasons tells why deliveries wait. They come from the view.
func (v *View) WaitReasons(ctx context.Context, list []webhook.Delivery) ([]webhook.WaitReason, error) {
	return v.hooks.Deliveries().WaitReasons(ctx, list)
}

// Attempts returns a delivery's attempts.
func (v *View) Attempts(ctx context.Context, delivery uuid.UUID) ([]webhook.Attempt, error) {
	return v.hooks.Deliveries().Attempts(ctx, v.scope, delivery)
}

// Request puts the request of an attempt together again.
func (v *View) Request(ctx context.Context, a webhook.Attempt) (webhook.RequestCopy, error) {
	return v.hooks.Deliveries().Request(ctx, v.scope, a)
}

// RetryDelivery sends a delivery again.
func (v *View) RetryDelivery(ctx context.Context, id uuid.UUID) (webhook.Delivery, error) {
	return v.hooks.Deliveries().RetryNow(ctx, v.scope, id)
}

// CancelDelivery withdraws a delivery.
func (v *View) CancelDelivery(ctx context.Context, id uuid.UUID, reason string) (webhook.Delivery, error) {
	return v.hooks.Deliveries().Cancel(ctx, v.scope, id, reason)
}

// ReplayEvent sends one event to one endpoint again.
func (v *View) ReplayEvent(ctx context.Context, event, endpoint uuid.UUID) (webhook.Delivery, error) {
	return v.hooks.Deliveries().Replay(ctx, v.scope, webhook.ReplayRequest{EventID: event, EndpointID: endpoint})
}

// EstimateReplay counts what a replay job would send.
func (v *View) EstimateReplay(ctx context.Context, r webhook.ReplayJobRequest) (webhook.ReplayEstimate, error) {
	return v.hooks.Replays().DryRun(ctx, v.scope, r)
}

// CreateReplay makes a replay job.
func (v *View) CreateReplay(ctx context.Context, r webhook.ReplayJobRequest) (webhook.ReplayJob, error) {
	return v.hooks.Replays().Create(ctx, v.scope, r)
}

// Replay returns a replay job.
func (v *View) Replay(ctx context.Context, id uuid.UUID) (webhook.ReplayJob, error) {
	return v.hooks.Replays().Get(ctx, v.scope, id)
}

// Replays lists replay jobs, newest first. The view's scope replaces p's.
func (v *View) Replays(ctx context.Context, p webhook.ListReplayJobsParams) ([]webhook.ReplayJob, error) {
	p.Scope = v.scope
	return v.hooks.Replays().List(ctx, p)
}

// CancelReplay ends a replay job.
func (v *View) CancelReplay(ctx context.Context, id uuid.UUID) (webhook.ReplayJob, error) {
	return v.hooks.Replays().Cancel(ctx, v.scope, id)
}
