package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/outhook/webhook"
)

func (a *app) deliveriesCommand() *cobra.Command {
	return group("deliveries", "List and show deliveries, and retry or cancel one",
		a.deliveriesListCommand(), a.deliveriesShowCommand(),
		a.deliveryCommand("retry", "Send a delivery again now: a pending one in its run, a finished one in a new run",
			func(ctx context.Context, d *webhook.Deliveries, s webhook.Scope, id uuid.UUID) (webhook.Delivery, error) {
				return d.RetryNow(ctx, s, id)
			}),
		a.deliveryCommand("cancel", "Withdraw a delivery that has not ended",
			func(ctx context.Context, d *webhook.Deliveries, s webhook.Scope, id uuid.UUID) (webhook.Delivery, error) {
				return d.Cancel(ctx, s, id, "cancelled on the command line")
			}),
	)
}

// What filters may be.
var (
	deliveryStates = []string{
		string(webhook.StatePending), string(webhook.StateInFlight), string(webhook.StateDelivered),
		string(webhook.StateDead), string(webhook.StateCancelled), string(webhook.StateShed),
	}
	statusClasses = []string{
		string(webhook.Status2xx), string(webhook.Status3xx), string(webhook.Status4xx), string(webhook.Status5xx), string(webhook.StatusNone),
	}
)

type deliveryJSON struct {
	ID            uuid.UUID             `json:"id"`
	EventID       uuid.UUID             `json:"event_id"`
	EndpointID    uuid.UUID             `json:"endpoint_id"`
	Tenant        string                `json:"tenant"`
	EventType     string                `json:"event_type"`
	Run           int                   `json:"run"`
	State         webhook.DeliveryState `json:"state"`
	Reason        string                `json:"reason,omitempty"`
	Attempts      int                   `json:"attempts"`
	LastStatus    int                   `json:"last_status,omitempty"`
	LastClass     webhook.ErrorClass    `json:"last_class,omitempty"`
	CreatedAt     time.Time             `json:"created_at"`
	NextAttemptAt time.Time             `json:"next_attempt_at,omitzero"`
	FinishedAt    time.Time             `json:"finished_at,omitzero"`
	Log           []attemptJSON         `json:"log,omitempty"`
}

func deliveryOf(d *webhook.Delivery) deliveryJSON {
	return deliveryJSON{
		ID: d.ID, EventID: d.EventID, EndpointID: d.EndpointID, Tenant: d.Tenant, EventType: d.EventType, Run: d.Run,
		State: d.State, Reason: d.Reason, Attempts: d.Attempts, LastStatus: d.LastStatus, LastClass: d.LastClass,
		CreatedAt: d.CreatedAt, NextAttemptAt: d.NextAttemptAt, FinishedAt: d.FinishedAt,
	}
}

// attemptJSON is an attempt. Excerpt is what the receiver answered.
type attemptJSON struct {
	DeliveryID uuid.UUID          `json:"delivery_id"`
	EventID    uuid.UUID          `json:"event_id"`
	EndpointID uuid.UUID          `json:"endpoint_id"`
	Tenant     string             `json:"tenant"`
	EventType  string             `json:"event_type,omitempty"`
	Number     int                `json:"number"`
	StartedAt  time.Time          `json:"started_at"`
	LatencyMS  float64            `json:"latency_ms"`
	Status     int                `json:"status"`
	Class      webhook.ErrorClass `json:"class,omitempty"`
	Error      string             `json:"error,omitempty"`
	Location   string             `json:"location,omitempty"`
	Excerpt    string             `json:"excerpt,omitempty"`
	Late       bool               `json:"late,omitempty"`
}

func attemptOf(t *webhook.Attempt) attemptJSON {
	return attemptJSON{
		DeliveryID: t.DeliveryID, EventID: t.EventID, EndpointID: t.EndpointID, Tenant: t.Tenant, Number: t.Number,
		StartedAt: t.StartedAt, LatencyMS: float64(t.Latency) / float64(time.Millisecond), Status: t.Status, Class: t.Class,
		Error: t.Error, Location: t.Location, Excerpt: string(t.Excerpt), Late: t.Late,
	}
}

// outcome is a status, or why there is none.
func outcome(status int, class webhook.ErrorClass) string {
	switch {
	case status == 0:
		return orDash(string(class))
	case class == "" || class == webhook.ClassHTTP4xx || class == webhook.ClassHTTP5xx || class == webhook.ClassRedirect:
		return fmt.Sprint(status)
	default:
		return fmt.Sprintf("%d %s", status, class)
	}
}

func (a *app) deliveriesListCommand() *cobra.Command {
	var tenant tenantFlag
	var event, endpoint idFlag
	var state, status string
	var from, until timeFlag
	q := webhook.DeliveryQuery{}
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List deliveries, newest first",
		Long: `Lists deliveries, newest first. Filters narrow the list together.

Times are RFC 3339, or dates, or how long ago: 36h.`,
		Example: `  webhook deliveries list --state dead --type invoice.paid --from 36h
  webhook deliveries list --endpoint ENDPOINT --status 5xx --from 2026-01-31T18:00:00Z --until 2026-01-31T19:00:00Z`,
		Args: args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			q.Scope, q.EventID, q.EndpointID = tenant.scope(), event.id, endpoint.id
			q.State, q.Status = webhook.DeliveryState(state), webhook.StatusClass(status)
			q.From, q.Until = from.at, until.at
			return a.with(cmd.Context(), func(ctx context.Context, db *database) error {
				page, err := db.hooks.Deliveries().List(ctx, q)
				if err != nil {
					return err
				}
				if page.Next != "" {
					fmt.Fprintf(cmd.ErrOrStderr(), "There may be more: go on with the same filters%s and --cursor %s\n", fixedTimes(cmd), page.Next)
				}
				return a.printDeliveries(page.Deliveries)
			})
		},
	}
	tenant.register(cmd)
	f := cmd.Flags()
	f.Var(&event, "event", "only of this event")
	f.Var(&endpoint, "endpoint", "only to this endpoint")
	f.StringVar(&state, "state", "", "only those that are "+words(deliveryStates))
	f.StringVar(&status, "status", "", "only those whose latest attempt got "+words(statusClasses))
	f.StringVar(&q.EventType, "type", "", "only of events of this type, which is not a pattern")
	f.StringVar(&q.ResourceID, "resource", "", "only of events about this resource")
	f.Var(&from, "from", "only those made at or after this time")
	f.Var(&until, "until", "only those made before this time")
	f.StringVar(&q.Cursor, "cursor", "", "where to go on, as told after a page that was not the last")
	f.IntVar(&q.Limit, "limit", 50, "how many to list at most, up to 1,000")
	completeWords(cmd, "state", deliveryStates)
	completeWords(cmd, "status", statusClasses)
	return cmd
}

// fixedTimes are the times of a list that were given as how long ago: the next page must
// have the same.
func fixedTimes(cmd *cobra.Command) string {
	var text strings.Builder
	for _, name := range []string{"from", "until"} {
		if f := cmd.Flags().Lookup(name); f.Changed {
			text.WriteString(" --" + name + " " + f.Value.String())
		}
	}
	return text.String()
}

func (a *app) printDeliveries(list []webhook.Delivery) error {
	if a.json {
		out := make([]deliveryJSON, len(list))
		for i := range list {
			out[i] = deliveryOf(&list[i])
		}
		return a.printJSON(out)
	}
	return a.printTable("ID|CREATED (UTC)|TYPE|STATE|ATTEMPTS|LAST|ENDPOINT|NEXT OR END (UTC)", func(row func(...any)) {
		for i := range list {
			d := &list[i]
			at := d.NextAttemptAt
			if d.State.Final() {
				at = d.FinishedAt
			}
			last := "-"
			if d.Attempts > 0 {
				last = outcome(d.LastStatus, d.LastClass)
			}
			row(d.ID, when(d.CreatedAt), d.EventType, d.State, d.Attempts, last, d.EndpointID, when(at))
		}
	})
}

func (a *app) deliveriesShowCommand() *cobra.Command {
	return a.oneCommand("show", "DELIVERY", "Show a delivery and its attempts",
		func(ctx context.Context, db *database, scope webhook.Scope, id uuid.UUID) error {
			d, err := db.hooks.Deliveries().Get(ctx, scope, id)
			if err != nil {
				return err
			}
			attempts, err := db.hooks.Deliveries().Attempts(ctx, scope, id)
			if err != nil {
				return err
			}
			return a.printDelivery(&d, attempts)
		})
}

func (a *app) printDelivery(d *webhook.Delivery, attempts []webhook.Attempt) error {
	if a.json {
		out := deliveryOf(d)
		for i := range attempts {
			out.Log = append(out.Log, attemptOf(&attempts[i]))
		}
		return a.printJSON(out)
	}
	err := a.printTable("FIELD|VALUE", func(row func(...any)) {
		row("id", d.ID)
		row("event", d.EventID)
		row("type", d.EventType)
		row("endpoint", d.EndpointID)
		row("tenant", orDash(d.Tenant))
		row("run", d.Run)
		row("state", d.State)
		row("reason", orDash(d.Reason))
		row("created", when(d.CreatedAt))
		row("next attempt", when(d.NextAttemptAt))
		row("finished", when(d.FinishedAt))
	})
	if err != nil || len(attempts) == 0 {
		return err
	}
	fmt.Fprintln(a.out)
	return a.printTable("ATTEMPT|STARTED (UTC)|LATENCY|OUTCOME|DETAIL", func(row func(...any)) {
		for i := range attempts {
			t := &attempts[i]
			detail := first(t.Error, t.Location, string(t.Excerpt), "-")
			if runes := []rune(detail); len(runes) > 80 {
				detail = string(runes[:80]) + "…"
			}
			row(t.Number, when(t.StartedAt), t.Latency.Round(100*time.Microsecond), outcome(t.Status, t.Class), detail)
		}
	})
}

func (a *app) deliveryCommand(verb, short string, change func(context.Context, *webhook.Deliveries, webhook.Scope, uuid.UUID) (webhook.Delivery, error)) *cobra.Command {
	return a.oneCommand(verb, "DELIVERY", short,
		func(ctx context.Context, db *database, scope webhook.Scope, id uuid.UUID) error {
			d, err := change(ctx, db.hooks.Deliveries(), scope, id)
			if err != nil {
				return err
			}
			return a.printDeliveries([]webhook.Delivery{d})
		})
}
