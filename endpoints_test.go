package webhook_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outhook/webhook"
)

const inbox = "https://hooks.acme.example/in"

func TestASecretIsShownOnce(t *testing.T) {
	t.Parallel() // P14
	h := newHost(t)
	made := h.endpoint(inbox)
	require.False(t, made.Secret.IsZero())
	assert.True(t, strings.HasPrefix(made.Secret.Reveal(), "whsec_"))

	got, err := h.hooks.Endpoints().Get(t.Context(), webhook.TenantScope("acme"), made.ID)
	require.NoError(t, err)
	assert.True(t, got.Secret.IsZero())
	require.Len(t, got.Secrets, 1)
	assert.Equal(t, made.Secret.Hint(), got.Secrets[0].Hint)
	list, err := h.hooks.Endpoints().List(t.Context(), webhook.ListEndpointsParams{Scope: webhook.AllTenants()})
	require.NoError(t, err)
	assert.Equal(t, []webhook.Endpoint{got}, list)
	assert.NotContains(t, fmt.Sprintf("%+v %#v", made, made), made.Secret.Reveal()[6:])
}

func TestStoredSecretsAndHeadersAreSealed(t *testing.T) {
	t.Parallel() // P01
	h := newHost(t)
	made := h.endpoint(inbox, func(p *webhook.EndpointParams) { p.Headers = map[string]string{"X-Token": "sesame-open"} })

	rec, err := h.store.GetEndpoint(t.Context(), webhook.AllTenants(), made.ID)
	require.NoError(t, err)

	dump := fmt.Sprintf("%q %q %q %v", rec.Secrets, rec.Headers, rec.Options, rec)
	assert.NotContains(t, dump, made.Secret.Reveal()[6:])
	assert.NotContains(t, dump, "sesame")
	got, err := h.hooks.Endpoints().Get(t.Context(), webhook.AllTenants(), made.ID)
	require.NoError(t, err)
	assert.Equal(t, webhook.Headers{"X-Token": "sesame-open"}, got.Headers)
}

func TestAForeignEndpointIsNotFound(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	made := h.endpoint(inbox)
	foreign := webhook.TenantScope("globex")
	s := h.hooks.Endpoints()

	_, err := s.Get(t.Context(), foreign, made.ID)
	require.ErrorIs(t, err, webhook.ErrNotFound)
	_, unknown := s.Get(t.Context(), foreign, uuid.New())
	require.ErrorIs(t, unknown, webhook.ErrNotFound)
	_, err = s.Update(t.Context(), foreign, made.ID, webhook.EndpointUpdate{})
	require.ErrorIs(t, err, webhook.ErrNotFound)
	_, err = s.Pause(t.Context(), foreign, made.ID, "")
	require.ErrorIs(t, err, webhook.ErrNotFound)
	_, err = s.RotateSecret(t.Context(), foreign, made.ID, webhook.RotateOptions{})
	require.ErrorIs(t, err, webhook.ErrNotFound)
	require.ErrorIs(t, s.Delete(t.Context(), foreign, made.ID), webhook.ErrNotFound)
}

// What is disabled over a tenant's head holds against the tenant; what failed too long,
// or what the tenant disabled itself, does not.
func TestATenantDoesNotEnableWhatAnOperatorDisabled(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	s := h.hooks.Endpoints()
	id, tenant, operator := h.endpoint(inbox).ID, webhook.TenantScope("acme"), webhook.AllTenants()
	do := func(act func(context.Context, webhook.Scope, uuid.UUID, string) (webhook.Endpoint, error), scope webhook.Scope, reason string) webhook.Endpoint {
		t.Helper()
		e, err := act(t.Context(), scope, id, reason)
		require.NoError(t, err)
		return e
	}
	enable := func(scope webhook.Scope) error { _, err := s.Enable(t.Context(), scope, id); return err }

	assert.False(t, do(s.Disable, tenant, "not now").DisabledByOperator)
	assert.True(t, do(s.Disable, operator, "abuse").DisabledByOperator, "also what was disabled before")
	require.ErrorIs(t, enable(tenant), webhook.ErrDisabledByOperator)
	require.ErrorIs(t, enable(webhook.TenantScope("globex")), webhook.ErrNotFound)
	_, err := s.Resume(t.Context(), tenant, id)
	require.ErrorIs(t, err, webhook.ErrEndpointDisabled)
	e := do(s.Disable, tenant, "my own idea")
	assert.True(t, e.DisabledByOperator, "nor is there a way around it by disabling once more")
	assert.Equal(t, "abuse", e.StateReason)
	_, err = s.Update(t.Context(), tenant, id, webhook.EndpointUpdate{Description: new("other")})
	require.NoError(t, err)
	require.ErrorIs(t, enable(tenant), webhook.ErrDisabledByOperator, "nor by changing it")
	e, err = s.Get(t.Context(), tenant, id)
	require.NoError(t, err)
	assert.Equal(t, webhook.EndpointDisabled, e.State)

	require.NoError(t, enable(operator))
	assert.False(t, do(s.Disable, tenant, "lunch").DisabledByOperator)
	require.NoError(t, enable(tenant))
	do(s.Pause, operator, "maintenance")
	assert.True(t, do(s.Disable, operator, "abuse").DisabledByOperator, "a paused one too")
	require.ErrorIs(t, enable(tenant), webhook.ErrDisabledByOperator)
}

func TestResumeEndsAPauseAndEnableADisabling(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	s := h.hooks.Endpoints()
	id, scope := h.endpoint(inbox).ID, webhook.TenantScope("acme")
	pause := func() error { _, err := s.Pause(t.Context(), scope, id, "moving house"); return err }
	resume := func() error { _, err := s.Resume(t.Context(), scope, id); return err }
	disable := func() error { _, err := s.Disable(t.Context(), scope, id, "gone"); return err }
	enable := func() error { _, err := s.Enable(t.Context(), scope, id); return err }

	for _, step := range []struct {
		what    string
		do      func() error
		allowed bool
		then    webhook.EndpointState
		reason  string
	}{
		{"resume an active one", resume, true, webhook.EndpointActive, ""},
		{"enable an active one", enable, true, webhook.EndpointActive, ""},
		{"pause an active one", pause, true, webhook.EndpointPaused, "moving house"},
		{"pause a paused one", pause, true, webhook.EndpointPaused, "moving house"},
		{"enable a paused one", enable, true, webhook.EndpointPaused, "moving house"},
		{"resume a paused one", resume, true, webhook.EndpointActive, ""},
		{"disable an active one", disable, true, webhook.EndpointDisabled, "gone"},
		{"disable a disabled one", disable, true, webhook.EndpointDisabled, "gone"},
		{"pause a disabled one", pause, false, webhook.EndpointDisabled, "gone"},
		{"resume a disabled one", resume, false, webhook.EndpointDisabled, "gone"},
		{"enable a disabled one", enable, true, webhook.EndpointActive, ""},
		{"pause it again", pause, true, webhook.EndpointPaused, "moving house"},
		{"disable a paused one", disable, true, webhook.EndpointDisabled, "gone"},
	} {
		err := step.do()
		if step.allowed {
			require.NoError(t, err, step.what)
		} else {
			require.ErrorIs(t, err, webhook.ErrEndpointDisabled, step.what)
		}
		e, err := s.Get(t.Context(), scope, id)
		require.NoError(t, err)
		require.Equal(t, step.then, e.State, step.what)
		require.Equal(t, step.reason, e.StateReason, step.what)
	}
}

func TestRefusedParametersNameTheFieldAndTheLimit(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	for want, alter := range map[string]func(*webhook.EndpointParams){
		"webhook: EndpointParams.Tenant is empty":                                   func(p *webhook.EndpointParams) { p.Tenant = "" },
		`webhook: EndpointParams.Types is empty; use "*" for all event types`:       func(p *webhook.EndpointParams) { p.Types = nil },
		"webhook: EndpointParams.Types has 101 patterns, over the limit of 100":     func(p *webhook.EndpointParams) { p.Types = make([]string, 101) },
		"webhook: EndpointParams.Description is 1025 bytes, over the limit of 1024": func(p *webhook.EndpointParams) { p.Description = strings.Repeat("d", 1025) },
		"webhook: EndpointParams.Filter is 16385 bytes, over the limit of 16384":    func(p *webhook.EndpointParams) { p.Filter = make([]byte, 16385) },
		"webhook: EndpointParams.MaxInFlight is -1, not 0 to 10000":                 func(p *webhook.EndpointParams) { p.MaxInFlight = -1 },
		"webhook: EndpointParams.Timeout is 31s, not 0 to 30s":                      func(p *webhook.EndpointParams) { p.Timeout = 31 * time.Second },
	} {
		p := webhook.EndpointParams{Tenant: "acme", URL: inbox, Types: []string{"*"}}
		alter(&p)
		_, err := h.hooks.Endpoints().Create(t.Context(), p)
		require.EqualError(t, err, want)
		assert.ErrorIs(t, err, webhook.ErrInvalid)
	}
	for field, alter := range map[string]func(*webhook.EndpointParams){
		"EndpointParams.URL":      func(p *webhook.EndpointParams) { p.URL = "http://169.254.169.254/" },
		"EndpointParams.Types[1]": func(p *webhook.EndpointParams) { p.Types = []string{"*", "a..b"} },
		"EndpointParams.Filter":   func(p *webhook.EndpointParams) { p.Filter = json.RawMessage(`{"a":{"$nope":1}}`) },
		"EndpointParams.Headers":  func(p *webhook.EndpointParams) { p.Headers = map[string]string{"Host": "x"} },
	} {
		p := webhook.EndpointParams{Tenant: "acme", URL: inbox, Types: []string{"*"}}
		alter(&p)
		_, err := h.hooks.Endpoints().Create(t.Context(), p)
		var refused *webhook.InvalidError
		require.ErrorAs(t, err, &refused)
		assert.True(t, strings.HasPrefix(refused.Field, field), "%s is not about %s", refused.Field, field)
	}
	list, err := h.hooks.Endpoints().List(t.Context(), webhook.ListEndpointsParams{Scope: webhook.AllTenants()})
	require.NoError(t, err)
	assert.Empty(t, list, "nothing refused is stored")
}

func TestAnUpdateChangesWhatItNamesAndNothingElse(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	made := h.endpoint(inbox, func(p *webhook.EndpointParams) {
		p.Description, p.MaxInFlight, p.Headers = "ours", 7, map[string]string{"X-A": "1"}
	})
	timeout := 3 * time.Second

	got, err := h.hooks.Endpoints().Update(t.Context(), webhook.AllTenants(), made.ID, webhook.EndpointUpdate{Timeout: &timeout})

	require.NoError(t, err)
	assert.Equal(t, timeout, got.Timeout)
	assert.Greater(t, got.Revision, made.Revision)
	got, err = h.hooks.Endpoints().Get(t.Context(), webhook.AllTenants(), made.ID)
	require.NoError(t, err)
	assert.Equal(t, "ours", got.Description)
	assert.Equal(t, 7, got.MaxInFlight)
	assert.Equal(t, webhook.Headers{"X-A": "1"}, got.Headers)
	assert.Equal(t, []string{"*"}, got.Types)

	bad := "http://10.0.0.1/"
	_, err = h.hooks.Endpoints().Update(t.Context(), webhook.AllTenants(), made.ID, webhook.EndpointUpdate{URL: &bad})
	require.ErrorIs(t, err, webhook.ErrInvalid) // A32
	_, err = h.hooks.Endpoints().Update(t.Context(), webhook.AllTenants(), made.ID, webhook.EndpointUpdate{Timeout: &timeout, IfRevision: made.Revision})
	require.ErrorIs(t, err, webhook.ErrConflict)
}

func TestManyRotationsInARowAllSign(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	made := h.endpoint(inbox)
	s := h.hooks.Endpoints()
	scope := webhook.AllTenants()
	for range 4 {
		rotated, err := s.RotateSecret(t.Context(), scope, made.ID, webhook.RotateOptions{})
		require.NoError(t, err)
		require.False(t, rotated.Secret.IsZero())
	}

	got, err := s.Get(t.Context(), scope, made.ID)
	require.NoError(t, err)
	require.Len(t, got.Secrets, 5)
	assert.True(t, got.Secrets[0].ExpiresAt.IsZero())
	for _, old := range got.Secrets[1:] {
		assert.InDelta(t, webhook.DefaultSecretOverlap, time.Until(old.ExpiresAt), float64(time.Minute))
	}

	for range 15 {
		_, err := s.RotateSecret(t.Context(), scope, made.ID, webhook.RotateOptions{})
		require.NoError(t, err)
	}
	_, err = s.RotateSecret(t.Context(), scope, made.ID, webhook.RotateOptions{})
	require.EqualError(t, err, "webhook: RotateOptions.Overlap would leave 21 secrets in use, over the limit of 20; a negative overlap ends the older ones")

	last, err := s.RotateSecret(t.Context(), scope, made.ID, webhook.RotateOptions{Overlap: -1})
	require.NoError(t, err)
	assert.Len(t, last.Secrets, 1, "a negative overlap ends the others at once")
	_, err = s.RotateSecret(t.Context(), scope, made.ID, webhook.RotateOptions{Overlap: 8 * 24 * time.Hour})
	require.ErrorIs(t, err, webhook.ErrInvalid)
}

func TestADeletedEndpointIsGone(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	made := h.endpoint(inbox)
	require.NoError(t, h.hooks.Endpoints().Delete(t.Context(), webhook.AllTenants(), made.ID))
	_, err := h.hooks.Endpoints().Get(t.Context(), webhook.AllTenants(), made.ID)
	require.ErrorIs(t, err, webhook.ErrNotFound)
	require.ErrorIs(t, h.hooks.Endpoints().Delete(t.Context(), webhook.AllTenants(), made.ID), webhook.ErrNotFound)
}
