package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/outhook/webhook"
)

func (a *app) endpointsCreateCommand() *cobra.Command {
	var p webhook.EndpointParams
	var policy policyFlags
	cmd := &cobra.Command{
		Use:   "create --tenant TENANT --url URL --types 'order.*'",
		Short: "Create an endpoint and print its secret, once; needs WEBHOOK_KEYS",
		Args:  args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := policy.config()
			if err != nil {
				return err
			}
			cfg.SingleTenant = p.Tenant == ""
			return a.withConfig(cmd.Context(), cfg, func(ctx context.Context, db *database) error {
				e, err := db.hooks.Endpoints().Create(ctx, p)
				if err != nil {
					return err
				}
				out := endpointOf(&e)
				out.Secret = e.Secret.Reveal()
				return a.printEndpoint(out)
			})
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

// changed prints an endpoint after a change, or says which keys a change needs.
func (a *app) changed(e *webhook.Endpoint, err error) error {
	if errors.Is(err, webhook.ErrSecretUnreadable) {
		return fmt.Errorf("%w: %w", err, errNoKeys)
	}
	if err != nil {
		return err
	}
	out := endpointOf(e)
	if !e.Secret.IsZero() {
		out.Secret = e.Secret.Reveal()
	}
	return a.printEndpoint(out)
}

func (a *app) endpointsUpdateCommand() *cobra.Command {
	var p webhook.EndpointParams
	var policy policyFlags
	var u webhook.EndpointUpdate
	cmd := a.oneCommandWith("update", "ENDPOINT", "Change an endpoint's address, subscriptions and limits", policy.config,
		func(ctx context.Context, db *database, scope webhook.Scope, id uuid.UUID) error {
			e, err := db.hooks.Endpoints().Update(ctx, scope, id, u)
			return a.changed(&e, err)
		})
	f := cmd.Flags()
	f.StringVar(&p.URL, "url", "", "where deliveries are posted to")
	f.StringSliceVar(&p.Types, "types", nil, "the patterns of the event types that it gets")
	f.StringVar(&p.Description, "description", "", "a text for people")
	f.Float64Var(&p.RateLimit, "rate", 0, "requests per second at most; 0: no limit of its own")
	f.IntVar(&p.Burst, "burst", 0, "how many requests may go at once under --rate; 0: one second's worth")
	f.BoolVar(&p.AdaptiveRate, "adaptive-rate", false, "find a rate from what the receiver answers with success")
	f.IntVar(&p.MaxInFlight, "max-in-flight", 0, "requests at once at most; 0: as the service says")
	f.DurationVar(&p.Timeout, "timeout", 0, "how long an attempt may take; 0: as the service says")
	f.BoolVar(&p.NewestFirst, "newest-first", false, "drain a backlog from its newest end")
	f.IntVar(&p.ShedBacklog, "shed-backlog", 0, "how many deliveries may wait before new ones are shed; 0: as the service says, -1: none are")
	policy.register(cmd)
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error {
		u = webhook.EndpointUpdate{
			URL: given(cmd, "url", &p.URL), Types: p.Types, Description: given(cmd, "description", &p.Description),
			RateLimit: given(cmd, "rate", &p.RateLimit), Burst: given(cmd, "burst", &p.Burst),
			AdaptiveRate: given(cmd, "adaptive-rate", &p.AdaptiveRate), MaxInFlight: given(cmd, "max-in-flight", &p.MaxInFlight),
			Timeout: given(cmd, "timeout", &p.Timeout), NewestFirst: given(cmd, "newest-first", &p.NewestFirst),
			ShedBacklog: given(cmd, "shed-backlog", &p.ShedBacklog),
		}
		if reflect.DeepEqual(u, webhook.EndpointUpdate{}) {
			return usagef("nothing to change: see 'webhook endpoints update --help'")
		}
		return nil
	}
	return cmd
}

// given is the value of a flag that is on the command line, and nil of another.
func given[T any](cmd *cobra.Command, flag string, value *T) *T {
	if !cmd.Flags().Changed(flag) {
		return nil
	}
	return value
}

func (a *app) endpointsRotateCommand() *cobra.Command {
	var overlap time.Duration
	cmd := a.oneCommand("rotate", "ENDPOINT", "Give an endpoint a new secret and print it, once; needs WEBHOOK_KEYS",
		func(ctx context.Context, db *database, scope webhook.Scope, id uuid.UUID) error {
			e, err := db.hooks.Endpoints().RotateSecret(ctx, scope, id, webhook.RotateOptions{Overlap: overlap})
			return a.changed(&e, err)
		})
	cmd.Flags().DurationVar(&overlap, "overlap", webhook.DefaultSecretOverlap, "how long the present secret signs beside the new one; negative ends it at once")
	return cmd
}

func (a *app) endpointsPauseCommand() *cobra.Command {
	var reason string
	return withReason(&reason, a.oneCommand("pause", "ENDPOINT", "Send nothing to an endpoint and keep its deliveries pending",
		func(ctx context.Context, db *database, scope webhook.Scope, id uuid.UUID) error {
			e, err := db.hooks.Endpoints().Pause(ctx, scope, id, reason)
			return a.changed(&e, err)
		}))
}

func (a *app) endpointsResumeCommand() *cobra.Command {
	return a.oneCommand("resume", "ENDPOINT", "Send to a paused endpoint again",
		func(ctx context.Context, db *database, scope webhook.Scope, id uuid.UUID) error {
			e, err := db.hooks.Endpoints().Resume(ctx, scope, id)
			return a.changed(&e, err)
		})
}

func (a *app) endpointsDisableCommand() *cobra.Command {
	var reason string
	return withReason(&reason, a.oneCommand("disable", "ENDPOINT", "Send nothing to an endpoint and cancel its deliveries",
		func(ctx context.Context, db *database, scope webhook.Scope, id uuid.UUID) error {
			e, err := db.hooks.Endpoints().Disable(ctx, scope, id, reason)
			return a.changed(&e, err)
		}))
}

func (a *app) endpointsEnableCommand() *cobra.Command {
	return a.oneCommand("enable", "ENDPOINT", "Send to a disabled endpoint again; what was cancelled stays so",
		func(ctx context.Context, db *database, scope webhook.Scope, id uuid.UUID) error {
			e, err := db.hooks.Endpoints().Enable(ctx, scope, id)
			return a.changed(&e, err)
		})
}

func withReason(reason *string, cmd *cobra.Command) *cobra.Command {
	cmd.Flags().StringVar(reason, "reason", "", "why, for people")
	return cmd
}

// deletedJSON tells of an endpoint that was deleted.
type deletedJSON struct {
	ID uuid.UUID `json:"id"`
	// Cancelled is how many deliveries had not ended, or, where AtLeast is true, at least
	// that many.
	Cancelled int  `json:"cancelled"`
	AtLeast   bool `json:"at_least,omitempty"`
}

func (a *app) endpointsDeleteCommand() *cobra.Command {
	var yes bool
	cmd := a.oneCommand("delete", "ENDPOINT", "Delete an endpoint for ever and cancel what has not ended",
		func(ctx context.Context, db *database, scope webhook.Scope, id uuid.UUID) error {
			rec, err := db.store.GetEndpoint(ctx, scope, id)
			if err != nil {
				return fmt.Errorf("endpoint %s: %w", id, err)
			}
			health, err := db.hooks.Health().Endpoint(ctx, scope, id)
			if err != nil {
				return err
			}
			gone := deletedJSON{ID: id, Cancelled: health.Backlog, AtLeast: health.BacklogCapped}
			what := fmt.Sprintf("endpoint %s of %s, %s", id, orDash(rec.Tenant), visible(shortURL(rec.URL)))
			if !yes && !a.confirmed("Delete "+what+"? "+gone.text("will be")) {
				return usagef("not deleted: answer yes, or give --yes")
			}
			if err := db.hooks.Endpoints().Delete(ctx, scope, id); err != nil {
				if errors.Is(err, webhook.ErrSecretUnreadable) {
					return fmt.Errorf("%w: %w", err, errNoKeys)
				}
				return err
			}
			if a.json {
				return a.printJSON(gone)
			}
			fmt.Fprintf(a.out, "Deleted %s. %s\n", what, gone.text("are"))
			return nil
		})
	cmd.Long = `Deletes an endpoint, which cannot be undone: its address, secrets and settings are gone.
Deliveries to it that have not ended are cancelled, by the service's dispatchers; the log
of its deliveries stays as long as every log, but nothing can be sent to it again. To keep
what waits, pause it; to keep what can be replayed, disable it.

Asks first, unless --yes is given.`
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return cmd
}

// text says what becomes of the deliveries that have not ended.
func (d *deletedJSON) text(verb string) string {
	switch {
	case d.AtLeast:
		return fmt.Sprintf("More than %d deliveries that have not ended %s cancelled.", d.Cancelled, verb)
	case d.Cancelled == 1:
		verb = strings.Replace(verb, "are", "is", 1)
		return fmt.Sprintf("One delivery that has not ended %s cancelled.", verb)
	case d.Cancelled > 1:
		return fmt.Sprintf("%d deliveries that have not ended %s cancelled.", d.Cancelled, verb)
	default:
		return "No delivery to it waits."
	}
}

// confirmed asks a question and reports whether the answer is yes.
func (a *app) confirmed(question string) bool {
	fmt.Fprintf(a.err, "%s [y/N] ", question)
	line, _ := bufio.NewReader(a.in).ReadString('\n')
	switch strings.ToLower(strings.TrimSpace(line)) {
	case "y", "yes":
		return true
	}
	return false
}

func (a *app) endpointsTestCommand() *cobra.Command {
	var policy policyFlags
	var eventType string
	cmd := a.oneCommandWith("test", "ENDPOINT", "Send a test event to an endpoint and show what it answers; needs WEBHOOK_KEYS",
		func() (webhook.Config, error) {
			cfg, err := policy.config()
			cfg.TestsWithoutDispatcher = true
			return cfg, err
		},
		func(ctx context.Context, db *database, scope webhook.Scope, id uuid.UUID) error {
			if a.getenv(keysVariable) == "" {
				return errNoKeys
			}
			attempt, err := db.hooks.Endpoints().SendTest(ctx, scope, id, eventType)
			if err != nil {
				return err
			}
			return a.printTest(&attempt)
		})
	cmd.Long = `Sends a test event to an endpoint, past its caps, a pause and an open circuit, and shows
what it answers. The request comes from this machine, signed as Standard Webhooks says;
webhook-test: true tells it from others. It changes nothing but the log: see
'webhook deliveries show'. Exit status 4 when it failed.

--allow and --allow-http repeat what the service's Transport allows beyond the strict
default.`
	cmd.Flags().StringVar(&eventType, "type", "webhook.test", "the event's type")
	policy.register(cmd)
	return cmd
}

func (a *app) printTest(t *webhook.Attempt) error {
	if a.json {
		if err := a.printJSON(attemptOf(t)); err != nil {
			return err
		}
	} else {
		err := a.printTable("FIELD|VALUE", func(row func(...any)) {
			row("delivery", t.DeliveryID)
			row("event", t.EventID)
			row("outcome", outcome(t.Status, t.Class))
			row("latency", t.Latency.Round(100*time.Microsecond))
			row("detail", orDash(first(t.Error, t.Location)))
			row("answer", orDash(string(t.Excerpt)))
		})
		if err != nil {
			return err
		}
	}
	if t.Class != webhook.ClassNone {
		return errProblem
	}
	return nil
}
