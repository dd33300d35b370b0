package storetest

import (
	"context"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/outhook/webhook"
)

func eachJob(change func(*webhook.ReplayJobRecord)) func(*store) {
	return func(s *store) {
		s.getReplayJob = func(ctx context.Context, scope webhook.Scope, id uuid.UUID) (webhook.ReplayJobRecord, error) {
			job, err := s.Store.GetReplayJob(ctx, scope, id)
			change(&job)
			return job, err
		}
	}
}

func eachJobList(change func(*webhook.ListReplayJobsParams)) func(*store) {
	return func(s *store) {
		s.listReplayJobs = func(ctx context.Context, p webhook.ListReplayJobsParams) ([]webhook.ReplayJobRecord, error) {
			change(&p)
			return s.Store.ListReplayJobs(ctx, p)
		}
	}
}

func eachFinished(change func(*webhook.FinishedDeliveriesParams)) func(*store) {
	return func(s *store) {
		s.finishedDeliveries = func(ctx context.Context, p webhook.FinishedDeliveriesParams) (webhook.ReplayPage, error) {
			change(&p)
			return s.Store.FinishedDeliveries(ctx, p)
		}
	}
}

func eachStored(change func(*webhook.StoredEventsParams)) func(*store) {
	return func(s *store) {
		s.storedEvents = func(ctx context.Context, p webhook.StoredEventsParams) (webhook.ReplayPage, error) {
			change(&p)
			return s.Store.StoredEvents(ctx, p)
		}
	}
}

func eachAdvance(change func(*store, *webhook.AdvanceReplayJobParams)) func(*store) {
	return func(s *store) {
		s.advanceReplayJob = func(ctx context.Context, p webhook.AdvanceReplayJobParams) (int, bool, error) {
			change(s, &p)
			return s.Store.AdvanceReplayJob(ctx, p)
		}
	}
}

func brokenReplays() []broken {
	return slices.Concat(brokenReplayJobs(), brokenReplayScans(), brokenReplayWork())
}

func brokenReplayJobs() []broken {
	return []broken{
		{
			"re-encodes a job's request", eachJob(func(j *webhook.ReplayJobRecord) {
				j.Request = slices.DeleteFunc(j.Request, func(b byte) bool { return b == ' ' })
			}),
			[]string{"a replay job is kept as it was made"},
		},
		{"forgets that a dead run was replayed", func(s *store) {
			s.finishedDeliveries = func(ctx context.Context, p webhook.FinishedDeliveriesParams) (webhook.ReplayPage, error) {
				page, err := s.Store.FinishedDeliveries(ctx, p)
				page.Candidates = append(page.Candidates, webhook.ReplayCandidate{})
				return page, err
			}
		}, []string{"a dead run is not replayed again when the delivered one after it is gone"}},
		{"keeps jobs for ever", func(s *store) {
			s.maintain = func(ctx context.Context, p webhook.MaintainParams) error {
				p.EventsBefore = time.Time{}
				return s.Store.Maintain(ctx, p)
			}
		}, []string{"replay jobs are removed with the events of their time, unless they run"}},
		{"makes a job twice", func(s *store) {
			s.createReplayJob = func(ctx context.Context, job webhook.ReplayJobRecord) error {
				_ = s.Store.CreateReplayJob(ctx, job)
				return nil
			}
		}, []string{"a replay job is kept as it was made"}},
		{"shows jobs to every tenant", func(s *store) {
			s.getReplayJob = func(ctx context.Context, _ webhook.Scope, id uuid.UUID) (webhook.ReplayJobRecord, error) {
				return s.Store.GetReplayJob(ctx, webhook.AllTenants(), id)
			}
		}, []string{"replay jobs are found within their scope only"}},
		{"lists an endpoint's jobs for every tenant", eachJobList(func(p *webhook.ListReplayJobsParams) {
			if p.EndpointID != uuid.Nil {
				p.Scope = webhook.AllTenants()
			}
		}), []string{"replay jobs are found within their scope only"}},
		{"cancels jobs of every tenant", func(s *store) {
			s.cancelReplayJob = func(ctx context.Context, p webhook.CancelReplayJobParams) (bool, error) {
				p.Scope = webhook.AllTenants()
				return s.Store.CancelReplayJob(ctx, p)
			}
		}, []string{"replay jobs are found within their scope only"}},
		{
			"does not filter jobs by endpoint", eachJobList(func(p *webhook.ListReplayJobsParams) { p.EndpointID = uuid.Nil }),
			[]string{"replay jobs are listed newest first, by endpoint, in pages"},
		},
		{
			"begins every page of jobs anew", eachJobList(func(p *webhook.ListReplayJobsParams) { p.Before = uuid.Nil }),
			[]string{"replay jobs are listed newest first, by endpoint, in pages"},
		},
		{"cancels no job", func(s *store) {
			s.cancelReplayJob = func(context.Context, webhook.CancelReplayJobParams) (bool, error) { return true, nil }
		}, []string{"a replay job that is cancelled ends and is not worked on"}},
	}
}

func brokenReplayScans() []broken {
	return []broken{
		{"forgets where a page ended", func(s *store) {
			s.finishedDeliveries = func(ctx context.Context, p webhook.FinishedDeliveriesParams) (webhook.ReplayPage, error) {
				page, err := s.Store.FinishedDeliveries(ctx, p)
				page.Next = p.After
				return page, err
			}
		}, []string{"finished deliveries are looked at in pages, each once"}},
		{"takes every page for the last", func(s *store) {
			s.finishedDeliveries = func(ctx context.Context, p webhook.FinishedDeliveriesParams) (webhook.ReplayPage, error) {
				page, err := s.Store.FinishedDeliveries(ctx, p)
				page.More = false
				return page, err
			}
		}, []string{"finished deliveries are looked at in pages, each once"}},
		{"finds the earlier runs too", func(s *store) {
			s.finishedDeliveries = func(ctx context.Context, p webhook.FinishedDeliveriesParams) (webhook.ReplayPage, error) {
				page, err := s.Store.FinishedDeliveries(ctx, p)
				all, _ := s.Store.ListDeliveries(ctx, webhook.ListDeliveriesParams{Scope: webhook.AllTenants(), EndpointID: p.EndpointID, Limit: plenty})
				page.Candidates = nil
				for _, d := range all.Deliveries {
					if slices.Contains(p.States, d.State) {
						page.Candidates = append(page.Candidates, webhook.ReplayCandidate{Cursor: d.ID, State: d.State})
					}
				}
				return page, err
			}
		}, []string{"only the latest run of an event may be replayed, once it is finished"}},
		{
			"finds what is in any state", eachFinished(func(p *webhook.FinishedDeliveriesParams) { p.States = allFinal }),
			[]string{"finished deliveries are narrowed by state and times"},
		},
		{
			"finds what finished at the end of the range", eachFinished(func(p *webhook.FinishedDeliveriesParams) {
				if !p.FinishedTo.IsZero() {
					p.FinishedTo = p.FinishedTo.Add(time.Microsecond)
				}
			}),
			[]string{"finished deliveries are narrowed by state and times"},
		},
		{
			"finds what began at any time", eachFinished(func(p *webhook.FinishedDeliveriesParams) { p.BegunTo = time.Time{} }),
			[]string{"finished deliveries are narrowed by state and times"},
		},
		{
			"finds events of any time", eachFinished(func(p *webhook.FinishedDeliveriesParams) { p.EventsFrom, p.EventsTo = time.Time{}, time.Time{} }),
			[]string{"finished deliveries are narrowed by state and times"},
		},
		{"knows no runs of stored events", func(s *store) {
			s.storedEvents = func(ctx context.Context, p webhook.StoredEventsParams) (webhook.ReplayPage, error) {
				page, err := s.Store.StoredEvents(ctx, p)
				for i := range page.Candidates {
					page.Candidates[i].State = ""
				}
				return page, err
			}
		}, []string{"stored events tell the state of their latest run"}},
		{
			"begins every page of events anew", eachStored(func(p *webhook.StoredEventsParams) { p.After = uuid.Nil }),
			[]string{"stored events are looked at in pages, within their times and ids"},
		},
		{
			"finds stored events of any time", eachStored(func(p *webhook.StoredEventsParams) { p.EventsFrom, p.EventsTo = time.Time{}, time.Time{} }),
			[]string{"stored events are looked at in pages, within their times and ids"},
		},
		{
			"gives no payload", eachStored(func(p *webhook.StoredEventsParams) { p.Payload = false }),
			[]string{"stored events come with their payload if it is asked for"},
		},
	}
}

func brokenReplayWork() []broken {
	return []broken{
		{"gives a job to everybody", func(s *store) {
			s.takeReplayJob = func(ctx context.Context, p webhook.TakeReplayJobParams) (webhook.ReplayWork, bool, error) {
				p.LeaseUntil = time.Time{}
				return s.Store.TakeReplayJob(ctx, p)
			}
		}, []string{"a replay job is leased to one at a time", "of many that want a replay job at once one gets it"}},
		{"never gives a job again", func(s *store) {
			s.takeReplayJob = func(ctx context.Context, p webhook.TakeReplayJobParams) (webhook.ReplayWork, bool, error) {
				p.LeaseUntil = p.LeaseUntil.AddDate(100, 0, 0)
				return s.Store.TakeReplayJob(ctx, p)
			}
		}, []string{"a replay job is leased to one at a time"}},
		{"takes the job made last", func(s *store) {
			s.createReplayJob = func(ctx context.Context, job webhook.ReplayJobRecord) error {
				job.DueAt = job.DueAt.Add(-2 * time.Until(job.DueAt))
				return s.Store.CreateReplayJob(ctx, job)
			}
		}, []string{"the replay job that has been due longest is taken first"}},
		{"does not count what waits", func(s *store) {
			s.takeReplayJob = func(ctx context.Context, p webhook.TakeReplayJobParams) (webhook.ReplayWork, bool, error) {
				work, ok, err := s.Store.TakeReplayJob(ctx, p)
				work.Waiting = 0
				return work, ok, err
			}
		}, []string{
			"advancing a replay job begins runs and moves it, once",
			"a replay job begins no run beside an unfinished one, nor of what is not there",
		}},
		{"leaves a job where it was", eachAdvance(func(s *store, p *webhook.AdvanceReplayJobParams) {
			if job, err := s.Store.GetReplayJob(context.Background(), webhook.AllTenants(), p.JobID); err == nil {
				p.Cursor = job.Cursor
			}
		}), []string{"advancing a replay job begins runs and moves it, once"}},
		{"counts the runs asked for", func(s *store) {
			s.advanceReplayJob = func(ctx context.Context, p webhook.AdvanceReplayJobParams) (int, bool, error) {
				_, held, err := s.Store.AdvanceReplayJob(ctx, p)
				return len(p.Events), held, err
			}
		}, []string{
			"advancing a replay job begins runs and moves it, once",
			"a replay job begins no run beside an unfinished one, nor of what is not there",
			"a replay job is not advanced by who does not hold it",
		}},
		{"advances a job for anybody", func(s *store) {
			s.advanceReplayJob = func(ctx context.Context, p webhook.AdvanceReplayJobParams) (int, bool, error) {
				created, _, err := s.Store.AdvanceReplayJob(ctx, p)
				return created, true, err
			}
		}, []string{"a replay job is not advanced by who does not hold it", "a replay job that is cancelled ends and is not worked on"}},
		{"advances a job of a disabled endpoint without its runs", func(s *store) {
			s.advanceReplayJob = func(ctx context.Context, p webhook.AdvanceReplayJobParams) (int, bool, error) {
				created, held, err := s.Store.AdvanceReplayJob(ctx, p)
				if err != nil {
					p.Events = nil
					return s.Store.AdvanceReplayJob(ctx, p)
				}
				return created, held, nil
			}
		}, []string{"a replay job begins nothing for an endpoint that is disabled or deleted"}},
	}
}
