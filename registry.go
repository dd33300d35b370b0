package webhook

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/outhook/webhook/internal/egress"
)

// registryPage is how many changed endpoints are read at a time.
const registryPage = 5000

// registry is a dispatcher's memory of the endpoints. It is told of changes by
// the fan-out, which sees them first, and by refresh.
type registry struct {
	core     *core
	onChange func([]*target) // called without locks held, possibly concurrently

	mu       sync.RWMutex
	targets  map[uuid.UUID]*target
	revision int64 // everything up to here has been read by refresh

	refreshing sync.Mutex // one refresh at a time
}

// target is one endpoint in one revision, ready to be sent to. It is immutable,
// but for the credentials, which are opened at the first attempt.
type target struct {
	record  EndpointRecord
	options endpointOptions
	host    string // scheme, host and port: what the host cap goes by
	id      string // the endpoint's id, written out

	mu          sync.Mutex
	credentials *credentials

	secretOnce  sync.Once
	secretSince time.Time // see secretAt
}

// credentials are what a request to an endpoint is signed and adorned with.
type credentials struct {
	secrets []activeSecret
	headers map[string]string
	tls     *egress.TLSOptions
}

func newRegistry(c *core, onChange func([]*target)) *registry {
	return &registry{core: c, onChange: onChange, targets: make(map[uuid.UUID]*target), revision: -1}
}

// get returns the endpoint, or nil when it is unknown.
func (r *registry) get(id uuid.UUID) *target {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.targets[id]
}

// all returns the endpoints that are not deleted.
func (r *registry) all() []*target {
	r.mu.RLock()
	defer r.mu.RUnlock()
	list := make([]*target, 0, len(r.targets))
	for _, t := range r.targets {
		if t.record.DeletedAt.IsZero() {
			list = append(list, t)
		}
	}
	return list
}

// at returns the endpoint in the given revision or a later one, reading changes
// from the store if need be.
func (r *registry) at(ctx context.Context, id uuid.UUID, revision int64) (*target, error) {
	if t := r.get(id); t != nil && t.record.Revision >= revision {
		return t, nil
	}
	if err := r.refresh(ctx); err != nil {
		return nil, err
	}
	return r.get(id), nil
}

// refresh reads the endpoints that changed since the last refresh.
func (r *registry) refresh(ctx context.Context) error {
	r.refreshing.Lock()
	defer r.refreshing.Unlock()
	return r.core.eachChanged(ctx, r.revision, func(changed []EndpointRecord, revision int64) error {
		r.apply(changed)
		r.revision = revision
		return nil
	})
}

// eachChanged hands on the endpoints that changed after a revision, page by page,
// each with the revision that it reaches.
func (c *core) eachChanged(ctx context.Context, since int64, apply func([]EndpointRecord, int64) error) error {
	for {
		changed, revision, err := c.backend.ChangedEndpoints(ctx, since, registryPage)
		if err != nil {
			return err
		}
		full := len(changed) == registryPage
		if full {
			revision = changed[registryPage-1].Revision
		}
		if err := apply(changed, revision); err != nil {
			return err
		}
		if !full {
			return nil
		}
		since = revision
	}
}

// apply takes over endpoints, except those that are known in a later revision.
func (r *registry) apply(records []EndpointRecord) {
	if len(records) == 0 {
		return
	}
	changed := make([]*target, 0, len(records))
	r.mu.Lock()
	for i := range records {
		known := r.targets[records[i].ID]
		if known != nil && known.record.Revision >= records[i].Revision {
			continue
		}
		t := newTarget(records[i])
		r.targets[t.record.ID] = t
		changed = append(changed, t)
	}
	r.mu.Unlock()
	if len(changed) > 0 {
		r.onChange(changed)
	}
}

func newTarget(rec EndpointRecord) *target {
	return &target{record: rec, options: optionsOf(&rec), host: hostOf(rec.URL), id: rec.ID.String()}
}

// optionsOf reads an endpoint's options. Unreadable ones, which only a hand in the
// database can make, mean the defaults: better sent with those than not at all.
func optionsOf(rec *EndpointRecord) endpointOptions {
	var o endpointOptions
	if json.Unmarshal(rec.Options, &o) != nil {
		return endpointOptions{}
	}
	return o
}

// hostOf returns what endpoints on the same server share. A URL that cannot be
// parsed is a host of its own; the egress guard refuses it at the attempt.
func hostOf(raw string) string {
	u, err := url.Parse(raw)
	if err != nil || u.Host == "" {
		return raw
	}
	port := u.Port()
	if port == "" {
		port = u.Scheme
	}
	return u.Scheme + "://" + u.Hostname() + ":" + port
}

// sendable reports whether the endpoint may be sent to.
func (t *target) sendable() bool {
	return t.record.State == EndpointActive && t.record.DeletedAt.IsZero()
}

// abandoned reports whether the endpoint's unfinished deliveries are to be
// cancelled, and why.
func (t *target) abandoned() (reason string, ok bool) {
	switch {
	case !t.record.DeletedAt.IsZero():
		return "endpoint deleted", true
	case t.record.State == EndpointDisabled && t.record.StateReason != "":
		return "endpoint disabled: " + t.record.StateReason, true
	case t.record.State == EndpointDisabled:
		return "endpoint disabled", true
	}
	return "", false
}

func (t *target) timeout(byDefault time.Duration) time.Duration {
	if t.options.TimeoutMS > 0 {
		return time.Duration(t.options.TimeoutMS) * time.Millisecond
	}
	return byDefault
}

// open returns what requests to the endpoint are signed with, the secrets that
// are still in use at now, and what they are sent with. A failure is not
// remembered: the next attempt tries again.
func (t *target) open(ctx context.Context, c *core, now time.Time) ([]Secret, *credentials, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.credentials == nil {
		opened, err := openCredentials(ctx, c, &t.record, now)
		if err != nil {
			return nil, nil, err
		}
		t.credentials = opened
	}
	active := make([]Secret, 0, len(t.credentials.secrets))
	for _, s := range t.credentials.secrets {
		if s.expiresAt.IsZero() || s.expiresAt.After(now) {
			active = append(active, s.Secret)
		}
	}
	return active, t.credentials, nil
}

func openCredentials(ctx context.Context, c *core, rec *EndpointRecord, now time.Time) (*credentials, error) {
	secrets, err := c.openSecrets(ctx, rec, now)
	if err != nil {
		return nil, err
	}
	v, err := c.openPrivate(ctx, rec)
	if err != nil {
		return nil, err
	}
	options, err := v.tls().options()
	if err != nil {
		return nil, fmt.Errorf("read the TLS settings of endpoint %s: %w", rec.ID, err)
	}
	return &credentials{secrets: secrets, headers: v.Headers, tls: options}, nil
}
