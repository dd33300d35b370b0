package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/outhook/webhook/internal/filter"
	"github.com/outhook/webhook/internal/matcher"
)

// Defaults and limits of secret rotation (docs/design.md §5).
const (
	// DefaultSecretOverlap is how long a secret that was rotated out goes on
	// signing beside the new one.
	DefaultSecretOverlap = 24 * time.Hour
	// MaxSecretOverlap is the longest such time.
	MaxSecretOverlap = 7 * 24 * time.Hour

	// maxActiveSecrets bounds the signatures in one request, and so how often a
	// secret may be rotated within the overlap.
	maxActiveSecrets = 20
)

// maxListLimit is the largest page of a list; a larger or missing limit means it.
const maxListLimit = 1000

// Endpoints manages endpoints. Changes reach every dispatcher within its PollInterval,
// as a rule at once.
// It is safe for concurrent use. Get it from [Hooks.Endpoints].
type Endpoints struct {
	core *core
}

// Create makes an endpoint and returns it with its secret, which no later read
// shows again. Refused parameters give an [InvalidError].
func (s *Endpoints) Create(ctx context.Context, p EndpointParams) (Endpoint, error) {
	if err := s.core.limits.checkTenant("Tenant", p.Tenant); err != nil {
		return Endpoint{}, err.in("EndpointParams")
	}
	if err := s.check(&p); err != nil {
		return Endpoint{}, err
	}
	if p.Secret.IsZero() {
		p.Secret = NewSecret()
	}
	now, err := s.core.now(ctx)
	if err != nil {
		return Endpoint{}, err
	}
	id, made, err := s.keyed(ctx, &p, now)
	if err != nil {
		return Endpoint{}, err
	}
	if made != nil {
		return *made, nil
	}
	rec := EndpointRecord{
		ID:             id,
		Tenant:         p.Tenant,
		State:          EndpointActive,
		StateChangedAt: now,
		CreatedAt:      now,
		UpdatedAt:      now,
	}
	if err := putParams(&rec, &p); err != nil {
		return Endpoint{}, err
	}
	v := privateOf(&p)
	if err := s.core.sealPrivate(ctx, &rec, v); err != nil {
		return Endpoint{}, err
	}
	first, err := s.seal(ctx, &rec, p.Secret, now)
	if err != nil {
		return Endpoint{}, err
	}
	if err := putSecrets(&rec, []sealedSecret{first}); err != nil {
		return Endpoint{}, err
	}
	created, err := s.core.backend.CreateEndpoint(ctx, rec)
	if errors.Is(err, ErrConflict) && p.IdempotencyKey != "" {
		return s.twin(ctx, &p, rec.ID)
	}
	if err != nil {
		return Endpoint{}, fmt.Errorf("create endpoint: %w", err)
	}
	rec = created
	s.changed()
	return shown(rec, v, p.Secret)
}

// keyed returns the id of an endpoint to be made, or the endpoint that an earlier call
// with the same idempotency key made.
func (s *Endpoints) keyed(ctx context.Context, p *EndpointParams, now time.Time) (uuid.UUID, *Endpoint, error) {
	if p.IdempotencyKey == "" {
		id, err := uuid.NewV7()
		if err != nil {
			return uuid.Nil, nil, fmt.Errorf("make an endpoint id: %w", err)
		}
		return id, nil, nil
	}
	ids := keyedIDs("endpoint", p.Tenant, p.IdempotencyKey, now)
	for _, id := range ids {
		e, err := s.Get(ctx, TenantScope(p.Tenant), id)
		if errors.Is(err, ErrNotFound) {
			continue
		}
		if err != nil {
			return uuid.Nil, nil, err
		}
		return id, &e, sameEndpoint(&e, p)
	}
	return ids[0], nil, nil
}

// twin returns the endpoint that another call with the same idempotency key has just
// made. One that is deleted keeps its id, and gives ErrConflict.
func (s *Endpoints) twin(ctx context.Context, p *EndpointParams, id uuid.UUID) (Endpoint, error) {
	e, err := s.Get(ctx, TenantScope(p.Tenant), id)
	if errors.Is(err, ErrNotFound) {
		return Endpoint{}, fmt.Errorf("create endpoint %s, which was deleted: %w", id, ErrConflict)
	}
	if err != nil {
		return Endpoint{}, err
	}
	if err := sameEndpoint(&e, p); err != nil {
		return Endpoint{}, err
	}
	return e, nil
}

// sameEndpoint gives ErrConflict for an idempotency key that was used for something
// else. An endpoint that was changed since may be different now.
func sameEndpoint(e *Endpoint, p *EndpointParams) error {
	if e.UpdatedAt.Equal(e.CreatedAt) && (e.URL != p.URL || !slices.Equal(e.Types, p.Types)) {
		return fmt.Errorf("create endpoint: the idempotency key was used for another one: %w", ErrConflict)
	}
	return nil
}

// Get returns an endpoint, or ErrNotFound.
func (s *Endpoints) Get(ctx context.Context, scope Scope, id uuid.UUID) (Endpoint, error) {
	rec, err := s.core.backend.GetEndpoint(ctx, scope, id)
	if err != nil {
		return Endpoint{}, fmt.Errorf("get endpoint %s: %w", id, err)
	}
	return s.read(ctx, &rec)
}

// List returns endpoints in the order of their creation. For the next page set p.After
// to the last id of this one. A limit of zero, less, or over 1,000 means 1,000.
func (s *Endpoints) List(ctx context.Context, p ListEndpointsParams) ([]Endpoint, error) {
	if p.Limit <= 0 || p.Limit > maxListLimit {
		p.Limit = maxListLimit
	}
	recs, err := s.core.backend.ListEndpoints(ctx, p)
	if err != nil {
		return nil, fmt.Errorf("list endpoints: %w", err)
	}
	list := make([]Endpoint, len(recs))
	for i := range recs {
		if list[i], err = s.read(ctx, &recs[i]); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// Update changes an endpoint's settings. Attempts that begin after it use the
// new ones, also those of deliveries that were pending.
func (s *Endpoints) Update(ctx context.Context, scope Scope, id uuid.UUID, u EndpointUpdate) (Endpoint, error) {
	return s.change(ctx, scope, id, u.IfRevision, func(ctx context.Context, rec *EndpointRecord, v *private) error {
		e, err := shown(*rec, *v, Secret{})
		if err != nil {
			return err
		}
		e.TLS = v.tls()
		u.applyTo(&e.EndpointParams)
		if err := s.check(&e.EndpointParams); err != nil {
			return err
		}
		if u.Headers != nil || u.TLS != nil {
			*v = privateOf(&e.EndpointParams)
			if err := s.core.sealPrivate(ctx, rec, *v); err != nil {
				return err
			}
		}
		return putParams(rec, &e.EndpointParams)
	})
}

// Pause stops sending to an active endpoint and keeps its deliveries pending. The
// reason is for people: at most 1,024 bytes, and may be empty. A disabled endpoint
// gives ErrEndpointDisabled.
func (s *Endpoints) Pause(ctx context.Context, scope Scope, id uuid.UUID, reason string) (Endpoint, error) {
	return s.setState(ctx, scope, id, EndpointPaused, reason)
}

// Resume makes a paused endpoint active again. A disabled endpoint gives
// ErrEndpointDisabled: what was disabled for a cause is not sent to again by whoever
// may pause and resume; see [Endpoints.Enable].
func (s *Endpoints) Resume(ctx context.Context, scope Scope, id uuid.UUID) (Endpoint, error) {
	return s.setState(ctx, scope, id, EndpointActive, "")
}

// Disable stops sending to an endpoint, an active or a paused one; its unfinished
// deliveries, and those of events enqueued while it is disabled, become cancelled.
// The reason is for people: at most 1,024 bytes, and may be empty.
//
// In the scope of [AllTenants] it is an operator's doing: then it takes that scope to
// enable the endpoint too. What a tenant disables, and what is disabled for its
// failures, the tenant may enable.
func (s *Endpoints) Disable(ctx context.Context, scope Scope, id uuid.UUID, reason string) (Endpoint, error) {
	if err := checkText("reason", reason, maxDescriptionBytes); err != nil {
		return Endpoint{}, err
	}
	_, limited := scope.Tenant()
	return s.change(ctx, scope, id, 0, func(_ context.Context, rec *EndpointRecord, _ *private) error {
		if limited && optionsOf(rec).ByOperator {
			return nil // the operator's reason stays
		}
		if err := putByOperator(rec, !limited); err != nil {
			return err
		}
		return putState(rec, EndpointDisabled, reason)
	})
}

// Enable makes a disabled endpoint active again. What was cancelled stays so. A
// paused endpoint stays paused. One that was disabled in the scope of [AllTenants]
// gives ErrDisabledByOperator in a tenant's.
func (s *Endpoints) Enable(ctx context.Context, scope Scope, id uuid.UUID) (Endpoint, error) {
	_, limited := scope.Tenant()
	return s.change(ctx, scope, id, 0, func(_ context.Context, rec *EndpointRecord, _ *private) error {
		switch {
		case rec.State != EndpointDisabled:
			return nil
		case limited && optionsOf(rec).ByOperator:
			return fmt.Errorf("enable endpoint %s: %w", id, ErrDisabledByOperator)
		}
		if err := putByOperator(rec, false); err != nil {
			return err
		}
		return putState(rec, EndpointActive, "")
	})
}

// Delete removes an endpoint; its unfinished deliveries become cancelled. The
// log of its deliveries stays.
func (s *Endpoints) Delete(ctx context.Context, scope Scope, id uuid.UUID) error {
	_, err := s.change(ctx, scope, id, 0, func(_ context.Context, rec *EndpointRecord, _ *private) error {
		rec.DeletedAt = rec.UpdatedAt
		// Nothing signs for the endpoint again.
		rec.Headers = nil
		return putSecrets(rec, nil)
	})
	return err
}

// RotateOptions say how [Endpoints.RotateSecret] changes secrets.
type RotateOptions struct {
	// Overlap is how long the present secret goes on signing beside the new one.
	// Zero means DefaultSecretOverlap; negative ends it at once, and those of earlier
	// rotations with it, which is right for a secret that has leaked, and makes
	// receivers that do not know the new one refuse what they get: that is logged as
	// a warning. At most MaxSecretOverlap.
	Overlap time.Duration

	// Secret is the new secret. Zero means that one is generated.
	Secret Secret
}

// RotateSecret gives an endpoint a new signing secret and returns it once. Until
// the overlap ends requests carry a signature for each secret. Rotations may
// follow one another while overlaps last.
func (s *Endpoints) RotateSecret(ctx context.Context, scope Scope, id uuid.UUID, o RotateOptions) (Endpoint, error) {
	switch {
	case o.Overlap == 0:
		o.Overlap = DefaultSecretOverlap
	case o.Overlap < 0:
		o.Overlap = 0
	case o.Overlap > MaxSecretOverlap:
		return Endpoint{}, invalid("RotateOptions.Overlap", "is "+o.Overlap.String()+", over the limit of "+MaxSecretOverlap.String())
	}
	if o.Secret.IsZero() {
		o.Secret = NewSecret()
	}
	e, err := s.change(ctx, scope, id, 0, func(ctx context.Context, rec *EndpointRecord, _ *private) error {
		secrets, err := secretsOf(rec)
		if err != nil {
			return err
		}
		next, err := s.seal(ctx, rec, o.Secret, rec.UpdatedAt)
		if err != nil {
			return err
		}
		secrets = rotated(secrets, next, rec.UpdatedAt, o.Overlap)
		if n := len(secrets); n > maxActiveSecrets {
			return &InvalidError{
				Field:   "RotateOptions.Overlap",
				Problem: "would leave " + strconv.Itoa(n) + " secrets in use, over the limit of " + strconv.Itoa(maxActiveSecrets) + "; a negative overlap ends the older ones",
				Limit:   maxActiveSecrets,
			}
		}
		return putSecrets(rec, secrets)
	})
	if err != nil {
		return Endpoint{}, err
	}
	e.Secret = o.Secret
	if o.Overlap == 0 {
		s.core.log.WarnContext(ctx, "webhook: secrets ended without an overlap: receivers refuse requests until they have the new one",
			"endpoint", id, "tenant", e.Tenant)
	}
	return e, nil
}

// rotated puts next in front of secrets, of which those without an expiry now
// get one, and drops what has expired.
func rotated(secrets []sealedSecret, next sealedSecret, now time.Time, overlap time.Duration) []sealedSecret {
	list := []sealedSecret{next}
	for _, old := range secrets {
		if old.ExpiresAt.IsZero() || overlap == 0 {
			old.ExpiresAt = now.Add(overlap)
		}
		if old.ExpiresAt.After(now) {
			list = append(list, old)
		}
	}
	return list
}

// setState pauses or resumes an endpoint. Out of the disabled state only Enable leads.
func (s *Endpoints) setState(ctx context.Context, scope Scope, id uuid.UUID, to EndpointState, reason string) (Endpoint, error) {
	if err := checkText("reason", reason, maxDescriptionBytes); err != nil {
		return Endpoint{}, err
	}
	return s.change(ctx, scope, id, 0, func(_ context.Context, rec *EndpointRecord, _ *private) error {
		if rec.State == EndpointDisabled {
			return fmt.Errorf("make endpoint %s %s: %w", id, to, ErrEndpointDisabled)
		}
		return putState(rec, to, reason)
	})
}

func putState(rec *EndpointRecord, to EndpointState, reason string) error {
	if rec.State == EndpointPaused && to != EndpointPaused {
		if err := putPause(rec, pause{From: rec.StateChangedAt, To: rec.UpdatedAt}); err != nil {
			return err
		}
	}
	if rec.State != to {
		rec.StateChangedAt = rec.UpdatedAt
	}
	rec.State = to
	rec.StateReason = reason
	return nil
}

// putPause remembers a pause that ended.
func putPause(rec *EndpointRecord, p pause) error {
	o := optionsOf(rec)
	o.Pauses = withPause(o.Pauses, p)
	return putOptions(rec, &o)
}

// putByOperator remembers whether it takes an operator to enable an endpoint.
func putByOperator(rec *EndpointRecord, by bool) error {
	o := optionsOf(rec)
	o.ByOperator = by
	return putOptions(rec, &o)
}

func putOptions(rec *EndpointRecord, o *endpointOptions) error {
	options, err := json.Marshal(o)
	if err != nil {
		return fmt.Errorf("write options of endpoint %s: %w", rec.ID, err)
	}
	rec.Options = options
	return nil
}

// change reads an endpoint, lets mutate alter the record, and writes it back.
// When someone else was faster it begins again, unless a revision is demanded.
func (s *Endpoints) change(ctx context.Context, scope Scope, id uuid.UUID, ifRevision int64,
	mutate func(context.Context, *EndpointRecord, *private) error,
) (Endpoint, error) {
	for {
		rec, err := s.core.backend.GetEndpoint(ctx, scope, id)
		if err != nil {
			return Endpoint{}, fmt.Errorf("get endpoint %s: %w", id, err)
		}
		if ifRevision != 0 && rec.Revision != ifRevision {
			return Endpoint{}, fmt.Errorf("change endpoint %s: revision is %d, not %d: %w", id, rec.Revision, ifRevision, ErrConflict)
		}
		v, err := s.core.openPrivate(ctx, &rec)
		if err != nil {
			return Endpoint{}, err
		}
		if rec.UpdatedAt, err = s.core.now(ctx); err != nil {
			return Endpoint{}, err
		}
		if err := mutate(ctx, &rec, &v); err != nil {
			return Endpoint{}, err
		}
		rec, err = s.core.backend.UpdateEndpoint(ctx, rec)
		if errors.Is(err, ErrConflict) && ifRevision == 0 {
			continue
		}
		if err != nil {
			return Endpoint{}, fmt.Errorf("change endpoint %s: %w", id, err)
		}
		s.changed()
		return shown(rec, v, Secret{})
	}
}

// changed tells dispatchers to read endpoints again.
func (s *Endpoints) changed() { s.core.waker.endpointsChanged() }

func (s *Endpoints) check(p *EndpointParams) error {
	if err := s.checkParams(p); err != nil {
		return err.in("EndpointParams")
	}
	return nil
}

func (s *Endpoints) checkParams(p *EndpointParams) *InvalidError {
	url, err := checkURL(s.core.client.Guard(), p.URL)
	if err != nil {
		return asInvalid("URL", err)
	}
	p.URL = url
	if len(p.Types) == 0 {
		return invalid("Types", `is empty; use "*" for all event types`)
	}
	if n := len(p.Types); n > maxPatterns {
		return &InvalidError{Field: "Types", Problem: "has " + strconv.Itoa(n) + " patterns, over the limit of " + strconv.Itoa(maxPatterns), Limit: maxPatterns}
	}
	for i, pattern := range p.Types {
		if err := matcher.ValidatePattern(pattern); err != nil {
			return &InvalidError{Field: "Types[" + strconv.Itoa(i) + "]", Problem: err.Error(), cause: err}
		}
	}
	if err := checkText("IdempotencyKey", p.IdempotencyKey, maxKeyBytes); err != nil {
		return err
	}
	if err := checkText("Description", p.Description, maxDescriptionBytes); err != nil {
		return err
	}
	if len(p.Filter) > maxFilterBytes {
		return tooLong("Filter", len(p.Filter), maxFilterBytes)
	}
	if len(p.Filter) > 0 {
		if _, err := filter.Compile(p.Filter); err != nil {
			return &InvalidError{Field: "Filter", Problem: err.Error(), cause: err}
		}
	}
	if err := checkStaticHeaders(p.Headers, s.core.allow, signerHeaderNames(s.core.signer)...); err != nil {
		return asInvalid("Headers", err)
	}
	if err := p.TLS.check(); err != nil {
		return err
	}
	if p.MaxInFlight < 0 || p.MaxInFlight > maxEndpointInFlight {
		return &InvalidError{Field: "MaxInFlight", Problem: "is " + strconv.Itoa(p.MaxInFlight) + ", not 0 to " + strconv.Itoa(maxEndpointInFlight), Limit: maxEndpointInFlight}
	}
	if p.Burst < 0 || p.Burst > maxEndpointInFlight {
		return &InvalidError{Field: "Burst", Problem: "is " + strconv.Itoa(p.Burst) + ", not 0 to " + strconv.Itoa(maxEndpointInFlight), Limit: maxEndpointInFlight}
	}
	// Written so that it refuses NaN.
	if !(p.RateLimit >= 0 && p.RateLimit <= maxEndpointRate) {
		return invalid("RateLimit", fmt.Sprintf("is %v, not 0 to %v", p.RateLimit, maxEndpointRate))
	}
	switch p.Ordering {
	case OrderingNone, OrderingPerResource, OrderingPerEndpoint:
	default:
		return invalid("Ordering", fmt.Sprintf("is %q, neither per_resource nor per_endpoint", p.Ordering))
	}
	if err := p.Retry.check(); err != nil {
		return err.in("Retry")
	}
	if p.Timeout < 0 || p.Timeout > maxEndpointTimeout {
		return invalid("Timeout", "is "+p.Timeout.String()+", not 0 to "+maxEndpointTimeout.String())
	}
	return nil
}

// read makes an endpoint of its record, with what is sealed of it but secrets.
func (s *Endpoints) read(ctx context.Context, rec *EndpointRecord) (Endpoint, error) {
	v, err := s.core.openPrivate(ctx, rec)
	if err != nil {
		return Endpoint{}, err
	}
	return shown(*rec, v, Secret{})
}

// shown is an endpoint as its owner sees it.
func shown(rec EndpointRecord, v private, secret Secret) (Endpoint, error) {
	e, err := endpointFromRecord(&rec)
	if err != nil {
		return Endpoint{}, err
	}
	v.show(&e.EndpointParams)
	e.Secret = secret
	return e, nil
}

func (s *Endpoints) seal(ctx context.Context, rec *EndpointRecord, secret Secret, now time.Time) (sealedSecret, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return sealedSecret{}, fmt.Errorf("make a secret id: %w", err)
	}
	sealed, err := sealSecret(ctx, s.core.box, secret, secretAAD(rec.Tenant, rec.ID, id))
	if err != nil {
		return sealedSecret{}, fmt.Errorf("seal the secret of endpoint %s: %w", rec.ID, err)
	}
	return sealedSecret{ID: id, Sealed: sealed, Hint: secret.Hint(), CreatedAt: now}, nil
}

func putSecrets(rec *EndpointRecord, secrets []sealedSecret) error {
	if secrets == nil {
		secrets = []sealedSecret{}
	}
	doc, err := json.Marshal(secrets)
	if err != nil {
		return fmt.Errorf("write secrets of endpoint %s: %w", rec.ID, err)
	}
	rec.Secrets = doc
	return nil
}

// openSecrets opens the secrets that are in use at now, the current one first. One
// that has expired is not looked at: were it unreadable, it must not hold anything.
func (c *core) openSecrets(ctx context.Context, rec *EndpointRecord, now time.Time) ([]activeSecret, error) {
	sealed, err := secretsOf(rec)
	if err != nil {
		return nil, err
	}
	secrets := make([]activeSecret, 0, len(sealed))
	for _, s := range sealed {
		if !s.ExpiresAt.IsZero() && !s.ExpiresAt.After(now) {
			continue
		}
		secret, err := openSecret(ctx, c.box, s.Sealed, secretAAD(rec.Tenant, rec.ID, s.ID))
		if err != nil {
			return nil, fmt.Errorf("open secret %s of endpoint %s: %w", s.ID, rec.ID, err)
		}
		secrets = append(secrets, activeSecret{Secret: secret, expiresAt: s.ExpiresAt})
	}
	return secrets, nil
}

// activeSecret is an opened secret with the end of its overlap; zero for the
// current one.
type activeSecret struct {
	Secret
	expiresAt time.Time
}
