package main

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/outhook/webhook"
)

func (a *app) endpointsCommand() *cobra.Command {
	return group("endpoints", "List, show, create, change, test and delete endpoints, and how they fare",
		a.endpointsListCommand(), a.endpointsShowCommand(), a.endpointsHealthCommand(), a.endpointsNoticesCommand(),
		a.endpointsCreateCommand(), a.endpointsUpdateCommand(), a.endpointsRotateCommand(), a.endpointsTestCommand(),
		a.endpointsPauseCommand(), a.endpointsResumeCommand(), a.endpointsDisableCommand(), a.endpointsEnableCommand(),
		a.endpointsDeleteCommand(),
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
	// Health is shown by show alone.
	Health *healthJSON `json:"health,omitempty"`
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
	var after idFlag
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List endpoints, oldest first",
		Args:  args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.with(cmd.Context(), func(ctx context.Context, db *database) error {
				list, err := listEndpoints(ctx, db, tenant.scope(), webhook.EndpointState(state), after.id, limit)
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
	cmd.Flags().Var(&after, "after", "the id after which to go on")
	completeWords(cmd, "state", []string{string(webhook.EndpointActive), string(webhook.EndpointPaused), string(webhook.EndpointDisabled)})
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
		if e.Health != nil {
			e.Health.rows(row)
		}
	})
}

func (a *app) endpointsShowCommand() *cobra.Command {
	return a.oneCommand("show", "ENDPOINT", "Show an endpoint and how it fares",
		func(ctx context.Context, db *database, scope webhook.Scope, id uuid.UUID) error {
			rec, err := db.store.GetEndpoint(ctx, scope, id)
			if err != nil {
				return fmt.Errorf("endpoint %s: %w", id, err)
			}
			health, err := db.hooks.Health().Endpoint(ctx, scope, id)
			if err != nil {
				return err
			}
			out := endpointOfRecord(&rec)
			out.Health = healthOf(&health)
			return a.printEndpoint(out)
		})
}
