package webhook

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
)

// Reencrypt seals anew, with the key that seals now, whatever was sealed with an
// older one: signing secrets, custom headers and TLS keys of all endpoints. It
// returns how many endpoints it changed. Afterwards the older keys can be taken
// out of the [Keyring], once every process has the new one.
//
// It may be stopped and called again at any time, and runs beside everything
// else. Endpoints whose secrets cannot be opened are left as they are and
// reported together in the error, which then matches ErrSecretUnreadable. Of an
// endpoint that it changes, secrets whose overlap has ended are dropped: they sign
// nothing any more, and must not keep an old key needed.
func (s *Endpoints) Reencrypt(ctx context.Context) (changed int, err error) {
	now, err := s.core.now(ctx)
	if err != nil {
		return 0, fmt.Errorf("reencrypt: %w", err)
	}
	var after uuid.UUID
	var unread []error
	for {
		recs, err := s.core.backend.ListEndpoints(ctx, ListEndpointsParams{Scope: AllTenants(), After: after, Limit: maxListLimit})
		if err != nil {
			return changed, fmt.Errorf("reencrypt: list endpoints: %w", err)
		}
		for i := range recs {
			ok, err := s.reencryptOne(ctx, recs[i], now)
			switch {
			case errors.Is(err, ErrSecretUnreadable):
				unread = append(unread, err)
			case err != nil:
				return changed, fmt.Errorf("reencrypt endpoint %s: %w", recs[i].ID, err)
			case ok:
				changed++
			}
		}
		if len(recs) < maxListLimit {
			break
		}
		after = recs[len(recs)-1].ID
	}
	if changed > 0 {
		s.changed()
	}
	return changed, errors.Join(unread...)
}

// reencryptOne changes one endpoint if need be, and again as long as somebody
// else changes it at the same time.
func (s *Endpoints) reencryptOne(ctx context.Context, rec EndpointRecord, now time.Time) (changed bool, err error) {
	for {
		if changed, err = s.reseal(ctx, &rec, now); err != nil || !changed {
			return false, err
		}
		_, err = s.core.backend.UpdateEndpoint(ctx, rec)
		switch {
		case err == nil:
			return true, nil
		case errors.Is(err, ErrNotFound): // deleted meanwhile, and its secrets with it
			return false, nil
		case !errors.Is(err, ErrConflict):
			return false, err
		}
		if rec, err = s.core.backend.GetEndpoint(ctx, AllTenants(), rec.ID); err != nil {
			if errors.Is(err, ErrNotFound) {
				return false, nil
			}
			return false, err
		}
	}
}

// reseal seals anew what an older key has sealed.
func (s *Endpoints) reseal(ctx context.Context, rec *EndpointRecord, now time.Time) (changed bool, err error) {
	secrets, err := secretsOf(rec)
	if err != nil {
		return false, unreadable(err)
	}
	active := secrets[:0]
	for _, secret := range secrets {
		if !needsReseal(s.core.box, secret.Sealed) {
			active = append(active, secret)
			continue
		}
		changed = true
		if !secret.ExpiresAt.IsZero() && !secret.ExpiresAt.After(now) {
			continue
		}
		aad := secretAAD(rec.Tenant, rec.ID, secret.ID)
		if secret.Sealed, err = resealSecret(ctx, s.core.box, s.core.box, secret.Sealed, aad); err != nil {
			return false, fmt.Errorf("secret %s of endpoint %s: %w", secret.ID, rec.ID, err)
		}
		active = append(active, secret)
	}
	if changed {
		if err := putSecrets(rec, active); err != nil {
			return false, err
		}
	}
	if len(rec.Headers) == 0 || !needsReseal(s.core.box, rec.Headers) {
		return changed, nil
	}
	v, err := s.core.openPrivate(ctx, rec)
	if err != nil {
		return false, err
	}
	return true, s.core.sealPrivate(ctx, rec, v)
}
