package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/outhook/webhook"
)

// replayPoll is how often a job is looked at.
const replayPoll = 300 * time.Millisecond

func (a *app) replayCommand() *cobra.Command {
	var r webhook.ReplayJobRequest
	var eventsFrom, eventsTo, finishedFrom, finishedTo timeFlag
	var states []string
	var dryRun, detach bool
	cmd := a.oneCommand("replay", "ENDPOINT", "Send an endpoint's deliveries again and show the progress",
		func(ctx context.Context, db *database, scope webhook.Scope, id uuid.UUID) error {
			r.EndpointID = id
			r.EventsFrom, r.EventsTo, r.FinishedFrom, r.FinishedTo = eventsFrom.at, eventsTo.at, finishedFrom.at, finishedTo.at
			for _, s := range states {
				r.States = append(r.States, webhook.DeliveryState(s))
			}
			if dryRun {
				return a.replayDryRun(ctx, db, scope, r)
			}
			job, err := db.hooks.Replays().Create(ctx, scope, r)
			if err != nil {
				return err
			}
			if detach {
				return a.printJob(job)
			}
			return a.watchJob(ctx, db, scope, job)
		})
	cmd.Long = `Makes a job that sends deliveries to an endpoint again: by default all that did not
arrive. A dispatcher of the service carries it out; this command only watches, and may
be interrupted: the job goes on, and 'webhook replay watch JOB' finds it again.

Times are RFC 3339, or dates, or how long ago: 36h.`
	f := cmd.Flags()
	f.Var(&eventsFrom, "from", "only events enqueued at or after this time")
	f.Var(&eventsTo, "to", "only events enqueued before this time")
	f.Var(&finishedFrom, "finished-from", "only deliveries that ended at or after this time")
	f.Var(&finishedTo, "finished-to", "only deliveries that ended before this time")
	f.StringSliceVar(&r.Types, "types", nil, "only events of types that match these patterns")
	f.StringSliceVar(&states, "states", nil, "only deliveries in these states (default dead, cancelled and shed)")
	f.BoolVar(&r.Rematch, "rematch", false, "also events without a delivery that the endpoint subscribes to now; needs --from")
	f.IntVar(&r.PerSecond, "per-second", 0, "how many to begin in a second at most")
	f.BoolVar(&dryRun, "dry-run", false, "count what would be sent, and send nothing")
	f.BoolVar(&detach, "detach", false, "do not wait for the job to end")
	cmd.AddCommand(a.replayListCommand(), a.replayWatchCommand(), a.replayCancelCommand())
	return cmd
}

func (a *app) replayDryRun(ctx context.Context, db *database, scope webhook.Scope, r webhook.ReplayJobRequest) error {
	estimate, err := db.hooks.Replays().DryRun(ctx, scope, r)
	if err != nil {
		return err
	}
	if a.json {
		return a.printJSON(estimate)
	}
	fmt.Fprintf(a.out, "%d deliveries would be sent again", estimate.Matched)
	if estimate.Rematched > 0 {
		fmt.Fprintf(a.out, ", %d of them because the endpoint subscribes to their events now", estimate.Rematched)
	}
	fmt.Fprintln(a.out, ".")
	return nil
}

// watchJob shows how a job goes on until it has ended.
func (a *app) watchJob(ctx context.Context, db *database, scope webhook.Scope, job webhook.ReplayJob) error {
	p := a.newProgress()
	for job.State == webhook.ReplayRunning {
		p.show(job)
		select {
		case <-ctx.Done():
			p.end()
			fmt.Fprintf(a.err, "The job goes on. Watch it: webhook replay watch %s\n", job.ID)
			return ctx.Err()
		case <-time.After(replayPoll):
		}
		next, err := db.hooks.Replays().Get(ctx, scope, job.ID)
		if err != nil {
			if ctx.Err() != nil {
				continue
			}
			return err
		}
		job = next
	}
	p.show(job)
	p.end()
	if err := a.printJob(job); err != nil {
		return err
	}
	if job.State == webhook.ReplayFailed {
		return errors.New("the job failed: " + job.Reason)
	}
	return nil
}

func (a *app) printJob(job webhook.ReplayJob) error {
	if a.json {
		return a.printJSON(job)
	}
	return a.printJobs([]webhook.ReplayJob{job})
}

func (a *app) printJobs(jobs []webhook.ReplayJob) error {
	if a.json {
		if jobs == nil {
			jobs = []webhook.ReplayJob{}
		}
		return a.printJSON(jobs)
	}
	return a.printTable("JOB|ENDPOINT|STATE|MATCHED|HANDLED|SENT AGAIN|CREATED (UTC)|FINISHED (UTC)|REASON", func(row func(...any)) {
		for _, j := range jobs {
			row(j.ID, j.EndpointID, j.State, j.Matched, j.Handled, j.Created, when(j.CreatedAt), when(j.FinishedAt), orDash(j.Reason))
		}
	})
}

func (a *app) replayListCommand() *cobra.Command {
	var tenant tenantFlag
	var endpoint idFlag
	p := webhook.ListReplayJobsParams{}
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List replay jobs, newest first",
		Args:  args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			p.Scope, p.EndpointID = tenant.scope(), endpoint.id
			return a.with(cmd.Context(), func(ctx context.Context, db *database) error {
				jobs, err := db.hooks.Replays().List(ctx, p)
				if err != nil {
					return err
				}
				return a.printJobs(jobs)
			})
		},
	}
	tenant.register(cmd)
	cmd.Flags().Var(&endpoint, "endpoint", "only to this endpoint")
	cmd.Flags().IntVar(&p.Limit, "limit", 20, "how many to list at most")
	return cmd
}

func (a *app) replayWatchCommand() *cobra.Command {
	return a.oneCommand("watch", "JOB", "Show the progress of a job until it ends",
		func(ctx context.Context, db *database, scope webhook.Scope, id uuid.UUID) error {
			job, err := db.hooks.Replays().Get(ctx, scope, id)
			if err != nil {
				return err
			}
			return a.watchJob(ctx, db, scope, job)
		})
}

func (a *app) replayCancelCommand() *cobra.Command {
	return a.oneCommand("cancel", "JOB", "End a job; what it has sent or begun stays",
		func(ctx context.Context, db *database, scope webhook.Scope, id uuid.UUID) error {
			job, err := db.hooks.Replays().Cancel(ctx, scope, id)
			if err != nil {
				return err
			}
			return a.printJob(job)
		})
}
