package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/outhook/webhook"
)

func (a *app) endpointsCommand() *cobra.Command {
	return group("endpoints", "List, show, create, pause and disable endpoints, and rotate their secrets",
		a.endpointsListCommand(), a.endpointsShowCommand(), a.endpointsCreateCommand(), a.endpointsRotateCommand(),
		a.endpointsStateCommand("pause", "Send nothing to an endpoint and keep its deliveries pending", true,
			func(ctx context.Context, e *webhook.Endpoints, s webhook.Scope, id uuid.UUID, reason string) (webhook.Endpoint, error) {
				return e.Pause(ctx, s, id, reason)
			}),
		a.endpointsStateCommand("resume", "Send to a paused endpoint again", false,
			func(ctx context.Context, e *webhook.Endpoints, s webhook.Scope, id uuid.UUID, _ string) (webhook.Endpoint, error) {
				return e.Resume(ctx, s, id)
			}),
		a.endpointsStateCommand("disable", "Send nothing to an endpoint and cancel its deliveries", true,
			func(ctx context.Context, e *webhook.Endpoints, s webhook.Scope, id uuid.UUID, reason string) (webhook.Endpoint, error) {
				return e.Disable(ctx, s, id, reason)
			}),
		a.endpointsStateCommand("enable", "Send to a disabled endpoint again; what was cancelled stays so", false,
			func(ctx context.Context, e *webhook.Endpoints, s webhook.Scope, id uuid.UUID, _ string) (webhook.Endpoint, error) {
				return e.Enable(ctx, s, id)
			}),
	)
}

// endpointJSON is an endpoint without anything that needs keys.
type endpointJSON struct {
	ID             uuid.UUID             `json:"id"`
	Tenant         string                `json:"tenant"`
	URL            string                `json:"url"`
	Types          []string              `json:"types"`
	State          webhook.EndpointState `json:"state"`
	StateReason    string                `json:"state_reason,omitempty"`
	StateChangedAt time.Time             `json:"state_changed_at,omitzero"`
	Revision       int64                 `json:"revision"`
	CreatedAt      time.Time             `json:"created_at"`
	UpdatedAt      time.Time             `json:"updated_at"`
	// Secret is shown by create and rotate alone.
	Secret string `json:"secret,omitempty"`
}

func endpointOf(e *webhook.Endpoint) endpointJSON {
	return endpointJSON{
		ID: e.ID, Tenant: e.Tenant, URL: e.URL, Types: e.Types, State: e.State, StateReason: e.StateReason,
		StateChangedAt: e.StateChangedAt, Revision: e.Revision, CreatedAt: e.CreatedAt, UpdatedAt: e.UpdatedAt,
	}
}

func endpointOfRecord(r *webhook.EndpointRecord) endpointJSON {
	return endpointJSON{
		ID: r.ID, Tenant: r.Tenant, URL: r.URL, Types: r.Types, State: r.State, StateReason: r.StateReason,
		StateChangedAt: r.StateChangedAt, Revision: r.Revision, CreatedAt: r.CreatedAt, UpdatedAt: r.UpdatedAt,
	}
}

// shortURL leaves out what may hold a credential.
func shortURL(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return "?"
	}
	u.User = nil
	if u.RawQuery != "" {
		u.RawQuery = "…"
	}
	return strings.TrimSuffix(u.String(), "/")
}

func (a *app) endpointsListCommand() *cobra.Command {
	var tenant tenantFlag
	var state string
	var limit int
	var after string
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List endpoints, oldest first",
		Args:  args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			var from uuid.UUID
			if after != "" {
				var err error
				if from, err = parseID("--after", after); err != nil {
					return err
				}
			}
			return a.with(cmd.Context(), func(ctx context.Context, db *database) error {
				list, err := listEndpoints(ctx, db, tenant.scope(), webhook.EndpointState(state), from, limit)
				if err != nil {
					return err
				}
				return a.printEndpoints(list)
			})
		},
	}
	tenant.register(cmd)
	cmd.Flags().StringVar(&state, "state", "", "only those that are active, paused or disabled")
	cmd.Flags().IntVar(&limit, "limit", 100, "how many to list at most")
	cmd.Flags().StringVar(&after, "after", "", "the id after which to go on")
	return cmd
}

// endpointPage is how many endpoints are read at a time.
const endpointPage = 500

func listEndpoints(ctx context.Context, db *database, scope webhook.Scope, state webhook.EndpointState, after uuid.UUID, limit int) ([]endpointJSON, error) {
	list := []endpointJSON{}
	err := eachEndpoint(ctx, db, scope, after, func(r *webhook.EndpointRecord) bool {
		if len(list) == limit {
			return false
		}
		if state == "" || r.State == state {
			list = append(list, endpointOfRecord(r))
		}
		return true
	})
	return list, err
}

// eachEndpoint calls do for each endpoint until it returns false.
func eachEndpoint(ctx context.Context, db *database, scope webhook.Scope, after uuid.UUID, do func(*webhook.EndpointRecord) bool) error {
	for {
		page, err := db.store.ListEndpoints(ctx, webhook.ListEndpointsParams{Scope: scope, After: after, Limit: endpointPage})
		if err != nil {
			return fmt.Errorf("list endpoints: %w", err)
		}
		for i := range page {
			if !do(&page[i]) {
				return nil
			}
		}
		if len(page) < endpointPage {
			return nil
		}
		after = page[len(page)-1].ID
	}
}

func (a *app) printEndpoints(list []endpointJSON) error {
	if a.json {
		return a.printJSON(list)
	}
	return a.printTable("ID|TENANT|STATE|URL|TYPES|REASON", func(row func(...any)) {
		for _, e := range list {
			row(e.ID, orDash(e.Tenant), e.State, shortURL(e.URL), strings.Join(e.Types, " "), orDash(e.StateReason))
		}
	})
}

func (a *app) printEndpoint(e endpointJSON) error {
	if a.json {
		return a.printJSON(e)
	}
	return a.printTable("FIELD|VALUE", func(row func(...any)) {
		row("id", e.ID)
		row("tenant", orDash(e.Tenant))
		row("url", shortURL(e.URL))
		row("types", strings.Join(e.Types, " "))
		row("state", e.State)
		row("reason", orDash(e.StateReason))
		row("since", when(e.StateChangedAt))
		row("created", when(e.CreatedAt))
		row("updated", when(e.UpdatedAt))
		row("revision", e.Revision)
		if e.Secret != "" {
			row("secret", e.Secret)
		}
	})
}

func (a *app) endpointsShowCommand() *cobra.Command {
	var tenant tenantFlag
	cmd := &cobra.Command{
		Use:   "show ENDPOINT",
		Short: "Show an endpoint",
		Args:  args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := parseID("ENDPOINT", args[0])
			if err != nil {
				return err
			}
			return a.with(cmd.Context(), func(ctx context.Context, db *database) error {
				rec, err := db.store.GetEndpoint(ctx, tenant.scope(), id)
				if err != nil {
					return fmt.Errorf("endpoint %s: %w", id, err)
				}
				return a.printEndpoint(endpointOfRecord(&rec))
			})
		},
	}
	tenant.register(cmd)
	return cmd
}

func (a *app) endpointsCreateCommand() *cobra.Command {
	var p webhook.EndpointParams
	var policy policyFlags
	cmd := &cobra.Command{
		Use:   "create --tenant TENANT --url URL --types 'order.*'",
		Short: "Create an endpoint and print its secret, once; needs WEBHOOK_KEYS",
		Args:  args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			transport, err := policy.transport()
			if err != nil {
				return err
			}
			db, err := a.open(cmd.Context(), openOptions{config: webhook.Config{SingleTenant: p.Tenant == "", Transport: transport}})
			if err != nil {
				return err
			}
			defer db.close()
			e, err := db.hooks.Endpoints().Create(cmd.Context(), p)
			if err != nil {
				return err
			}
			out := endpointOf(&e)
			out.Secret = e.Secret.Reveal()
			return a.printEndpoint(out)
		},
	}
	f := cmd.Flags()
	f.StringVar(&p.Tenant, "tenant", "", "whose endpoint it is (default: that of a service without tenants)")
	f.StringVar(&p.URL, "url", "", "where deliveries are posted to")
	f.StringSliceVar(&p.Types, "types", []string{"*"}, "the patterns of the event types that it gets")
	f.StringVar(&p.Description, "description", "", "a text for people")
	policy.register(cmd)
	_ = cmd.MarkFlagRequired("url")
	return cmd
}

func (a *app) endpointsRotateCommand() *cobra.Command {
	var tenant tenantFlag
	var overlap time.Duration
	cmd := &cobra.Command{
		Use:   "rotate ENDPOINT",
		Short: "Give an endpoint a new secret and print it, once; needs WEBHOOK_KEYS",
		Args:  args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := parseID("ENDPOINT", args[0])
			if err != nil {
				return err
			}
			return a.with(cmd.Context(), func(ctx context.Context, db *database) error {
				e, err := db.hooks.Endpoints().RotateSecret(ctx, tenant.scope(), id, webhook.RotateOptions{Overlap: overlap})
				if err != nil {
					return err
				}
				out := endpointOf(&e)
				out.Secret = e.Secret.Reveal()
				return a.printEndpoint(out)
			})
		},
	}
	tenant.register(cmd)
	cmd.Flags().DurationVar(&overlap, "overlap", webhook.DefaultSecretOverlap, "how long the present secret signs beside the new one; negative ends it at once")
	return cmd
}

// setState changes an endpoint's state.
type setState func(ctx context.Context, e *webhook.Endpoints, s webhook.Scope, id uuid.UUID, reason string) (webhook.Endpoint, error)

func (a *app) endpointsStateCommand(use, short string, hasReason bool, set setState) *cobra.Command {
	var tenant tenantFlag
	var reason string
	cmd := &cobra.Command{
		Use:   use + " ENDPOINT",
		Short: short,
		Args:  args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := parseID("ENDPOINT", args[0])
			if err != nil {
				return err
			}
			return a.with(cmd.Context(), func(ctx context.Context, db *database) error {
				e, err := set(ctx, db.hooks.Endpoints(), tenant.scope(), id, reason)
				if errors.Is(err, webhook.ErrSecretUnreadable) {
					return fmt.Errorf("%w: %w", err, errNoKeys)
				}
				if err != nil {
					return err
				}
				return a.printEndpoint(endpointOf(&e))
			})
		},
	}
	tenant.register(cmd)
	if hasReason {
		cmd.Flags().StringVar(&reason, "reason", "", "why, for people")
	}
	return cmd
}
