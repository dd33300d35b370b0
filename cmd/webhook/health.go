package main

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/outhook/webhook"
)

// healthJSON is how an endpoint fares. Times in milliseconds are latencies of the latest
// half hour to hour with attempts.
type healthJSON struct {
	EndpointID        uuid.UUID             `json:"endpoint_id"`
	Tenant            string                `json:"tenant"`
	State             webhook.EndpointState `json:"state"`
	Status            webhook.HealthStatus  `json:"status"`
	Score             int                   `json:"score"`
	Circuit           webhook.CircuitState  `json:"circuit"`
	NextProbeAt       time.Time             `json:"next_probe_at,omitzero"`
	Flaps             int64                 `json:"flaps,omitempty"`
	FailingSince      time.Time             `json:"failing_since,omitzero"`
	FailuresInARow    int64                 `json:"consecutive_failures,omitempty"`
	LastStatus        int                   `json:"last_status,omitempty"`
	LastClass         webhook.ErrorClass    `json:"last_class,omitempty"`
	LastSuccessAt     time.Time             `json:"last_success_at,omitzero"`
	HourAttempts      int64                 `json:"hour_attempts"`
	HourFailed        int64                 `json:"hour_failed"`
	HourThrottled     int64                 `json:"hour_throttled,omitempty"`
	LatencyP50MS      float64               `json:"latency_p50_ms"`
	LatencyP99MS      float64               `json:"latency_p99_ms"`
	LagMS             int64                 `json:"lag_ms"`
	Backlog           int                   `json:"backlog"`
	BacklogCapped     bool                  `json:"backlog_capped,omitempty"`
	Dead              int64                 `json:"dead"`
	SuspectedStatus   int                   `json:"suspected_status,omitempty"`
	SuspiciousSuccess bool                  `json:"suspicious_success,omitempty"`
}

func healthOf(h *webhook.EndpointHealth) *healthJSON {
	out := &healthJSON{
		EndpointID: h.EndpointID, Tenant: h.Tenant, State: h.State, Status: h.Status, Score: h.Score,
		Circuit: h.Circuit.State, NextProbeAt: h.Circuit.NextProbeAt, Flaps: h.Circuit.Flaps,
		FailingSince: h.FailingSince, FailuresInARow: h.ConsecutiveFailures, LastStatus: h.LastStatus, LastClass: h.LastClass,
		LastSuccessAt: h.LastSuccessAt, HourAttempts: h.Hour.Attempts, HourFailed: h.Hour.Failed, HourThrottled: h.Hour.Throttled,
		LatencyP50MS: milliseconds(h.LatencyP50), LatencyP99MS: milliseconds(h.LatencyP99), LagMS: h.Lag.Milliseconds(),
		Backlog: h.Backlog, BacklogCapped: h.BacklogCapped, Dead: h.DeadCount, SuspiciousSuccess: h.SuspiciousSuccess,
	}
	if h.ConfigurationError != nil {
		out.SuspectedStatus = h.ConfigurationError.Status
	}
	return out
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func (h *healthJSON) backlog() string {
	if h.BacklogCapped {
		return fmt.Sprintf("over %d", h.Backlog)
	}
	return fmt.Sprint(h.Backlog)
}

func (h *healthJSON) lag() time.Duration {
	return (time.Duration(h.LagMS) * time.Millisecond).Round(time.Second)
}

func (h *healthJSON) last() string {
	if h.LastStatus == 0 && h.LastClass == "" {
		return "-"
	}
	return outcome(h.LastStatus, h.LastClass)
}

// rows are those of an endpoint's table.
func (h *healthJSON) rows(row func(...any)) {
	row("health", fmt.Sprintf("%s, score %d", h.Status, h.Score))
	circuit := string(h.Circuit)
	if !h.NextProbeAt.IsZero() {
		circuit += ", next probe " + when(h.NextProbeAt)
	}
	row("circuit", circuit)
	row("failing since", when(h.FailingSince))
	row("last failure", h.last())
	row("last success", when(h.LastSuccessAt))
	row("last hour", fmt.Sprintf("%d attempts, %d failed, %d throttled", h.HourAttempts, h.HourFailed, h.HourThrottled))
	row("latency", fmt.Sprintf("p50 %.0f ms, p99 %.0f ms", h.LatencyP50MS, h.LatencyP99MS))
	row("backlog", fmt.Sprintf("%s, the oldest due for %s", h.backlog(), h.lag()))
	row("dead in 30 days", h.Dead)
	if h.SuspectedStatus != 0 {
		row("suspected", fmt.Sprintf("wrongly set up: nearly all failures are %d", h.SuspectedStatus))
	}
	if h.SuspiciousSuccess {
		row("suspected", "something answers in the receiver's place: successes are much faster than they were")
	}
}

func (a *app) endpointsHealthCommand() *cobra.Command {
	var tenant tenantFlag
	var after idFlag
	var all bool
	var p webhook.ListHealthParams
	cmd := &cobra.Command{
		Use:   "health",
		Short: "List the endpoints that do not fare well: circuits, backlogs, latest failures",
		Args:  args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			p.Scope, p.After, p.Unwell = tenant.scope(), after.id, !all
			return a.with(cmd.Context(), func(ctx context.Context, db *database) error {
				list, err := db.hooks.Health().List(ctx, p)
				if err != nil {
					return err
				}
				return a.printHealth(list)
			})
		},
	}
	tenant.register(cmd)
	f := cmd.Flags()
	f.BoolVar(&all, "all", false, "also those none of whose latest 20 attempts failed")
	f.BoolVar(&p.Failing, "failing", false, "only those whose latest attempt failed")
	f.Var(&after, "after", "the id after which to go on")
	f.IntVar(&p.Limit, "limit", 100, "how many to list at most, up to 1,000")
	return cmd
}

func (a *app) printHealth(list []webhook.EndpointHealth) error {
	out := make([]*healthJSON, len(list))
	for i := range list {
		out[i] = healthOf(&list[i])
	}
	if a.json {
		return a.printJSON(out)
	}
	return a.printTable("ENDPOINT|TENANT|STATE|HEALTH|SCORE|CIRCUIT|IN A ROW|LAST|P99|BACKLOG|LAG|DEAD", func(row func(...any)) {
		for _, h := range out {
			row(h.EndpointID, orDash(h.Tenant), h.State, h.Status, h.Score, h.Circuit, h.FailuresInARow, h.last(),
				fmt.Sprintf("%.0f ms", h.LatencyP99MS), h.backlog(), h.lag(), h.Dead)
		}
	})
}

type noticeJSON struct {
	ID         uuid.UUID          `json:"id"`
	Kind       webhook.NoticeKind `json:"kind"`
	EndpointID uuid.UUID          `json:"endpoint_id"`
	Tenant     string             `json:"tenant"`
	Streak     time.Time          `json:"streak"`
	CreatedAt  time.Time          `json:"created_at"`
	webhook.NoticeDetail
}

func (a *app) endpointsNoticesCommand() *cobra.Command {
	var tenant tenantFlag
	var endpoint, before idFlag
	var p webhook.ListNoticesParams
	cmd := &cobra.Command{
		Use:   "notices",
		Short: "List what was noticed about endpoints, newest first",
		Args:  args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			p.Scope, p.EndpointID, p.Before = tenant.scope(), endpoint.id, before.id
			return a.with(cmd.Context(), func(ctx context.Context, db *database) error {
				list, err := db.hooks.Health().Notices(ctx, p)
				if err != nil {
					return err
				}
				return a.printNotices(list)
			})
		},
	}
	tenant.register(cmd)
	f := cmd.Flags()
	f.Var(&endpoint, "endpoint", "only about this endpoint")
	f.Var(&before, "before", "the id before which to go on")
	f.IntVar(&p.Limit, "limit", 50, "how many to list at most")
	return cmd
}

func (a *app) printNotices(list []webhook.Notice) error {
	out := make([]noticeJSON, len(list))
	for i := range list {
		n := &list[i]
		out[i] = noticeJSON{n.ID, n.Kind, n.EndpointID, n.Tenant, n.Streak, n.CreatedAt, n.NoticeDetail}
	}
	if a.json {
		return a.printJSON(out)
	}
	return a.printTable("NOTICED (UTC)|KIND|TENANT|ENDPOINT|SINCE (UTC)|LAST|REASON", func(row func(...any)) {
		for i := range out {
			n := &out[i]
			last := "-"
			if n.Status != 0 || n.Class != "" {
				last = outcome(n.Status, n.Class)
			}
			row(when(n.CreatedAt), n.Kind, orDash(n.Tenant), n.EndpointID, when(n.Streak), last, orDash(n.Reason))
		}
	})
}
