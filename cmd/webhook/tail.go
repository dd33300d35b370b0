package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/outhook/webhook"
)

const (
	// tailPoll is how often the log is looked at, and tailPage how much of it.
	tailPoll = 500 * time.Millisecond
	tailPage = 1000

	// tailShort is how far most looks reach back; every tailLong-th reaches as far as
	// the longest attempts take, and results wait.
	tailShort = 3 * time.Second
	tailLong  = 10
	tailReach = 40 * time.Second
)

// follower prints attempts, each once.
type follower struct {
	app    *app
	db     *database
	query  webhook.RecentAttemptsParams
	failed bool
	count  int // 0: no limit

	printed map[attemptKey]time.Time // when it started
	looks   int
	shown   int
}

// attemptKey tells attempts apart.
type attemptKey struct {
	delivery uuid.UUID
	started  int64
}

func (a *app) tailCommand() *cobra.Command {
	var tenant tenantFlag
	var endpoint idFlag
	var back time.Duration
	f := &follower{app: a, printed: make(map[attemptKey]time.Time)}
	cmd := &cobra.Command{
		Use:   "tail",
		Short: "Show attempts as they happen",
		Args:  args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if back < 0 || f.count < 0 {
				return usagef("--since and --count are not negative")
			}
			f.query.Scope, f.query.EndpointID, f.query.Limit = tenant.scope(), endpoint.id, tailPage
			return a.with(cmd.Context(), func(ctx context.Context, db *database) error {
				f.db = db
				return f.follow(ctx, back)
			})
		},
	}
	tenant.register(cmd)
	fl := cmd.Flags()
	fl.Var(&endpoint, "endpoint", "only to this endpoint")
	fl.BoolVar(&f.failed, "failed", false, "only those that failed")
	fl.DurationVar(&back, "since", 0, "begin with attempts that started so long ago")
	fl.IntVar(&f.count, "count", 0, "end after so many")
	return cmd
}

// follow shows attempts until ctx ends, which is how it is meant to end.
func (f *follower) follow(ctx context.Context, back time.Duration) error {
	now, err := f.db.store.Now(ctx)
	if err != nil {
		return err
	}
	from := now.Add(-back)
	reach := back + tailShort
	for {
		if err := f.look(ctx, from, reach); err != nil && ctx.Err() == nil {
			return err
		}
		if f.count > 0 && f.shown >= f.count {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(tailPoll):
		}
		reach = tailShort
		if f.looks++; f.looks%tailLong == 0 {
			reach = tailReach
		}
	}
}

// look shows the attempts that started since from, within reach, and were not shown.
func (f *follower) look(ctx context.Context, from time.Time, reach time.Duration) error {
	now, err := f.db.store.Now(ctx)
	if err != nil {
		return err
	}
	f.query.Since = now.Add(-reach)
	if f.query.Since.Before(from) {
		f.query.Since = from
	}
	list, err := f.db.store.RecentAttempts(ctx, f.query)
	if err != nil {
		return err
	}
	fresh := 0
	for _, a := range slices.Backward(list) { // the latest come first
		key := attemptKey{a.DeliveryID, a.StartedAt.UnixNano()}
		if _, known := f.printed[key]; known {
			continue
		}
		f.printed[key] = a.StartedAt
		fresh++
		if f.failed && a.Class == webhook.ClassNone || f.count > 0 && f.shown >= f.count {
			continue
		}
		f.shown++
		if err := f.print(&a); err != nil {
			return err
		}
	}
	if fresh == tailPage {
		fmt.Fprintln(f.app.err, "… more than can be shown; narrow it with --failed, --tenant or --endpoint")
	}
	for key, at := range f.printed {
		if now.Sub(at) > 2*tailReach+reach {
			delete(f.printed, key)
		}
	}
	return nil
}

func (f *follower) print(t *webhook.RecentAttempt) error {
	a := f.app
	if a.json {
		out := attemptOf(&t.Attempt)
		out.EventType = t.EventType
		return a.printLine(out)
	}
	color := green
	switch {
	case t.Class == webhook.ClassNone:
	case t.Class == webhook.ClassCancelled || t.Class == webhook.ClassInternal || t.Class == webhook.ClassProxy:
		color = yellow
	default:
		color = red
	}
	note := ""
	if t.Late {
		note = a.paint(yellow, "  late: another has taken over")
	}
	if detail := first(t.Location, t.Error); detail != "" {
		note += "  " + a.paint(faint, visible(detail))
	}
	_, err := fmt.Fprintf(a.out, "%s  %s %8s  %-24s attempt %-2d %s → %s%s\n",
		a.paint(faint, t.StartedAt.Local().Format("15:04:05.000")), a.paint(color, fmt.Sprintf("%-12s", outcome(t.Status, t.Class))),
		t.Latency.Round(100*time.Microsecond), visible(orDash(t.EventType)), t.Number, visible(orDash(t.Tenant)), t.EndpointID, note)
	return err
}
