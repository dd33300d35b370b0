package storetest

import (
	"bytes"
	"context"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/outhook/webhook"
)

// The hooks of the store that are about how endpoints fare.
type vitalsHooks struct {
	loadVitals     func(context.Context, []uuid.UUID) ([]webhook.VitalsRecord, error)
	saveVitals     func(context.Context, webhook.SaveVitalsParams) ([]uuid.UUID, error)
	listUnwell     func(context.Context, webhook.ListUnwellParams) ([]uuid.UUID, error)
	readHealth     func(context.Context, webhook.ReadHealthParams) ([]webhook.HealthRow, error)
	countEndpoints func(context.Context, webhook.Scope) (webhook.EndpointCounts, error)
	saveActivity   func(context.Context, []webhook.ActivityRecord) error
	listActivity   func(context.Context, time.Time, time.Time) ([]webhook.ActivityRecord, error)
	addNotices     func(context.Context, []webhook.NoticeRecord) ([]uuid.UUID, error)
	dueNotices     func(context.Context, time.Time, int) ([]webhook.NoticeRecord, error)
	settleNotices  func(context.Context, []webhook.NoticeRecord) error
	listNotices    func(context.Context, webhook.ListNoticesParams) ([]webhook.NoticeRecord, error)
}

func hooksOf(m webhook.Backend) vitalsHooks {
	return vitalsHooks{
		loadVitals: m.LoadVitals, saveVitals: m.SaveVitals, listUnwell: m.ListUnwell,
		readHealth: m.ReadHealth, countEndpoints: m.CountEndpoints, saveActivity: m.SaveActivity, listActivity: m.ListActivity,
		addNotices: m.AddNotices, dueNotices: m.DueNotices, settleNotices: m.SettleNotices, listNotices: m.ListNotices,
	}
}

func (s *store) LoadVitals(ctx context.Context, ids []uuid.UUID) ([]webhook.VitalsRecord, error) {
	return s.loadVitals(ctx, ids)
}

func (s *store) SaveVitals(ctx context.Context, p webhook.SaveVitalsParams) ([]uuid.UUID, error) {
	return s.saveVitals(ctx, p)
}

func (s *store) ListUnwell(ctx context.Context, p webhook.ListUnwellParams) ([]uuid.UUID, error) {
	return s.listUnwell(ctx, p)
}

func (s *store) ReadHealth(ctx context.Context, p webhook.ReadHealthParams) ([]webhook.HealthRow, error) {
	return s.readHealth(ctx, p)
}

func (s *store) CountEndpoints(ctx context.Context, scope webhook.Scope) (webhook.EndpointCounts, error) {
	return s.countEndpoints(ctx, scope)
}

func (s *store) SaveActivity(ctx context.Context, activity []webhook.ActivityRecord) error {
	return s.saveActivity(ctx, activity)
}

func (s *store) ListActivity(ctx context.Context, from, until time.Time) ([]webhook.ActivityRecord, error) {
	return s.listActivity(ctx, from, until)
}

func (s *store) AddNotices(ctx context.Context, notices []webhook.NoticeRecord) ([]uuid.UUID, error) {
	return s.addNotices(ctx, notices)
}

func (s *store) DueNotices(ctx context.Context, now time.Time, limit int) ([]webhook.NoticeRecord, error) {
	return s.dueNotices(ctx, now, limit)
}

func (s *store) SettleNotices(ctx context.Context, notices []webhook.NoticeRecord) error {
	return s.settleNotices(ctx, notices)
}

func (s *store) ListNotices(ctx context.Context, p webhook.ListNoticesParams) ([]webhook.NoticeRecord, error) {
	return s.listNotices(ctx, p)
}

// eachSave changes what SaveVitals is given.
func eachSave(change func(*store, *webhook.SaveVitalsParams)) func(*store) {
	return func(s *store) {
		s.saveVitals = func(ctx context.Context, p webhook.SaveVitalsParams) ([]uuid.UUID, error) {
			p.Vitals, p.Notices = slices.Clone(p.Vitals), slices.Clone(p.Notices)
			change(s, &p)
			return s.Store.SaveVitals(ctx, p)
		}
	}
}

// eachRow changes what ReadHealth returns.
func eachRow(change func(*webhook.HealthRow)) func(*store) {
	return func(s *store) {
		s.readHealth = func(ctx context.Context, p webhook.ReadHealthParams) ([]webhook.HealthRow, error) {
			rows, err := s.Store.ReadHealth(ctx, p)
			for i := range rows {
				change(&rows[i])
			}
			return rows, err
		}
	}
}

// eachNotice changes what AddNotices is given.
func eachNotice(change func(*webhook.NoticeRecord)) func(*store) {
	return func(s *store) {
		s.addNotices = func(ctx context.Context, notices []webhook.NoticeRecord) ([]uuid.UUID, error) {
			notices = slices.Clone(notices)
			for i := range notices {
				change(&notices[i])
			}
			return s.Store.AddNotices(ctx, notices)
		}
	}
}

func noticesListed(change func(*webhook.ListNoticesParams)) func(*store) {
	return func(s *store) {
		s.listNotices = func(ctx context.Context, p webhook.ListNoticesParams) ([]webhook.NoticeRecord, error) {
			change(&p)
			return s.Store.ListNotices(ctx, p)
		}
	}
}

func unwellListed(change func(*webhook.ListUnwellParams)) func(*store) {
	return func(s *store) {
		s.listUnwell = func(ctx context.Context, p webhook.ListUnwellParams) ([]uuid.UUID, error) {
			change(&p)
			return s.Store.ListUnwell(ctx, p)
		}
	}
}

// regardless stores vitals whatever their version is.
func regardless(s *store, p *webhook.SaveVitalsParams) {
	for i := range p.Vitals {
		stored, err := s.Store.LoadVitals(context.Background(), []uuid.UUID{p.Vitals[i].EndpointID})
		if err == nil && len(stored) > 0 {
			p.Vitals[i].Version = stored[0].Version
		}
	}
}

const (
	vitalsRemoved  = "the vitals of endpoints that were deleted for a while are removed"
	vitalsStored   = "vitals are stored byte for byte, with a version that counts"
	vitalsFenced   = "vitals of another version are left as they are, and so are their notices"
	vitalsOnce     = "of many that save the same version one does"
	unwellSorted   = "endpoints with trouble are listed by level, scope and page"
	healthRows     = "health is a row for each endpoint, with what was stored"
	healthDue      = "the oldest due delivery is due and not leased, and pending ones are counted up to a bound"
	healthCounts   = "endpoints are counted by state and level, deleted ones and those of others not"
	activityStored = "what a dispatcher did replaces what it said before of the same time"
	noticeOnce     = "of an endpoint, kind and streak there is one notice, whoever adds it"
	noticeWhole    = "a notice is stored whole"
	noticeEvent    = "the event of a notice is enqueued with it, and once"
	noticeDue      = "due notices come in the order in which they are due, until they are settled"
	noticeListed   = "notices are listed newest first, by scope, endpoint and page"
	noticeRemoved  = "old notices and what dispatchers did long ago are removed"
)

func brokenVitals() []broken {
	return []broken{
		{"re-encodes vitals", eachSave(func(_ *store, p *webhook.SaveVitalsParams) {
			for i := range p.Vitals {
				p.Vitals[i].Data = bytes.ReplaceAll(p.Vitals[i].Data, []byte(" "), nil)
			}
		}), []string{vitalsStored, healthRows}},
		{"loses the level of vitals", eachSave(func(_ *store, p *webhook.SaveVitalsParams) {
			for i := range p.Vitals {
				p.Vitals[i].Level = 0
			}
		}), []string{vitalsStored, unwellSorted, healthCounts}},
		{"keeps the vitals of deleted endpoints", eachMaintain(func(p *webhook.MaintainParams) {
			p.DeletedBefore = time.Time{}
		}), []string{vitalsRemoved}},
		{"removes the vitals of endpoints deleted just now", eachMaintain(func(p *webhook.MaintainParams) {
			p.DeletedBefore = p.Now
		}), []string{vitalsRemoved}},
		{"stores vitals of any version", eachSave(regardless), []string{vitalsFenced, vitalsOnce}},
		{"adds notices of vitals that are not stored", func(s *store) {
			s.saveVitals = func(ctx context.Context, p webhook.SaveVitalsParams) ([]uuid.UUID, error) {
				if _, err := s.Store.AddNotices(ctx, p.Notices); err != nil {
					return nil, err
				}
				return s.Store.SaveVitals(ctx, p)
			}
		}, []string{vitalsFenced}},
		{"does not say what is stale", func(s *store) {
			s.saveVitals = func(ctx context.Context, p webhook.SaveVitalsParams) ([]uuid.UUID, error) {
				_, err := s.Store.SaveVitals(ctx, p)
				return nil, err
			}
		}, []string{vitalsFenced, vitalsOnce}},
		{"loads vitals that nobody stored", func(s *store) {
			s.loadVitals = func(ctx context.Context, ids []uuid.UUID) ([]webhook.VitalsRecord, error) {
				loaded, err := s.Store.LoadVitals(ctx, ids)
				return append(loaded, webhook.VitalsRecord{EndpointID: uuid.UUID{9}}), err
			}
		}, []string{vitalsStored}},
		{"lists another tenant's endpoints with trouble", unwellListed(func(p *webhook.ListUnwellParams) { p.Scope = webhook.AllTenants() }), []string{unwellSorted}},
		{"lists endpoints with less trouble", unwellListed(func(p *webhook.ListUnwellParams) { p.Level = webhook.LevelWell }), []string{unwellSorted}},
		{"begins the list of those with trouble anew", unwellListed(func(p *webhook.ListUnwellParams) { p.After = uuid.Nil }), []string{unwellSorted}},
		{"lists no end of those with trouble", unwellListed(func(p *webhook.ListUnwellParams) { p.Limit = plenty }), []string{unwellSorted}},
		{"leaves out endpoints of which nothing is known", func(s *store) {
			s.readHealth = func(ctx context.Context, p webhook.ReadHealthParams) ([]webhook.HealthRow, error) {
				rows, err := s.Store.ReadHealth(ctx, p)
				return slices.DeleteFunc(rows, func(h webhook.HealthRow) bool { return len(h.Vitals) == 0 }), err
			}
		}, []string{healthRows}},
		{"forgets the circuit", eachRow(func(h *webhook.HealthRow) { h.Circuit = nil }), []string{healthRows}},
		{"takes what is leased for due", func(s *store) {
			s.readHealth = func(ctx context.Context, p webhook.ReadHealthParams) ([]webhook.HealthRow, error) {
				rows, err := s.Store.ReadHealth(ctx, p)
				p.Now = p.Now.Add(time.Hour)
				late, _ := s.Store.ReadHealth(ctx, p)
				for i := range rows {
					rows[i].OldestDueAt = late[i].OldestDueAt
				}
				return rows, err
			}
		}, []string{healthDue}},
		{"counts what is pending without bound", func(s *store) {
			s.readHealth = func(ctx context.Context, p webhook.ReadHealthParams) ([]webhook.HealthRow, error) {
				p.CountUpTo = plenty
				return s.Store.ReadHealth(ctx, p)
			}
		}, []string{healthDue}},
		{"counts everybody's endpoints", func(s *store) {
			s.countEndpoints = func(ctx context.Context, _ webhook.Scope) (webhook.EndpointCounts, error) {
				return s.Store.CountEndpoints(ctx, webhook.AllTenants())
			}
		}, []string{healthCounts}},
		{"keeps the first that a dispatcher said", func(s *store) {
			s.saveActivity = func(ctx context.Context, activity []webhook.ActivityRecord) error {
				activity = slices.DeleteFunc(slices.Clone(activity), func(a webhook.ActivityRecord) bool {
					known, err := s.Store.ListActivity(ctx, a.At, a.At.Add(time.Microsecond))
					return err != nil || slices.ContainsFunc(known, func(k webhook.ActivityRecord) bool { return k.Dispatcher == a.Dispatcher })
				})
				return s.Store.SaveActivity(ctx, activity)
			}
		}, []string{activityStored}},
		{"lists the end of the time as well", func(s *store) {
			s.listActivity = func(ctx context.Context, from, until time.Time) ([]webhook.ActivityRecord, error) {
				return s.Store.ListActivity(ctx, from, until.Add(time.Microsecond))
			}
		}, []string{activityStored}},
		{"adds a notice each time", eachNotice(func(n *webhook.NoticeRecord) { n.Streak = time.Unix(0, int64(n.ID.Time())+int64(n.ID[15])*1000) }), []string{noticeOnce}},
		{"adds one notice of an endpoint", eachNotice(func(n *webhook.NoticeRecord) { n.Kind = webhook.NoticeFailing }), []string{noticeOnce, noticeWhole}},
		{"forgets how often a notice was told", eachNotice(func(n *webhook.NoticeRecord) { n.Attempts = 0 }), []string{noticeWhole}},
		{"adds no event of a notice", eachNotice(func(n *webhook.NoticeRecord) { n.Event = nil }), []string{noticeEvent}},
		{"adds the event of a notice that was there", func(s *store) {
			s.addNotices = func(ctx context.Context, notices []webhook.NoticeRecord) ([]uuid.UUID, error) {
				for _, n := range notices {
					if n.Event == nil {
						continue
					}
					tx := s.Store.Begin()
					if _, err := s.Store.InsertEvents(ctx, tx, []webhook.EventRecord{*n.Event}); err != nil {
						return nil, err
					}
					if err := tx.Commit(); err != nil {
						return nil, err
					}
				}
				return s.Store.AddNotices(ctx, notices)
			}
		}, []string{noticeEvent}},
		{"returns notices before they are due", func(s *store) {
			s.dueNotices = func(ctx context.Context, now time.Time, limit int) ([]webhook.NoticeRecord, error) {
				return s.Store.DueNotices(ctx, now.Add(time.Hour), limit)
			}
		}, []string{noticeDue}},
		{"returns notices in another order", func(s *store) {
			s.dueNotices = func(ctx context.Context, now time.Time, limit int) ([]webhook.NoticeRecord, error) {
				due, err := s.Store.DueNotices(ctx, now, limit)
				slices.Reverse(due)
				return due, err
			}
		}, []string{noticeDue}},
		{"does not settle notices", func(s *store) {
			s.settleNotices = func(context.Context, []webhook.NoticeRecord) error { return nil }
		}, []string{noticeDue}},
		{"lists another tenant's notices", noticesListed(func(p *webhook.ListNoticesParams) { p.Scope = webhook.AllTenants() }), []string{noticeListed}},
		{"lists the notices of all endpoints", noticesListed(func(p *webhook.ListNoticesParams) { p.EndpointID = uuid.Nil }), []string{noticeListed}},
		{"begins the list of notices anew", noticesListed(func(p *webhook.ListNoticesParams) { p.Before = uuid.Nil }), []string{noticeListed}},
		{"keeps notices for ever", func(s *store) {
			s.maintain = func(ctx context.Context, p webhook.MaintainParams) error {
				p.NoticesBefore = time.Time{}
				return s.Store.Maintain(ctx, p)
			}
		}, []string{noticeRemoved}},
		{"keeps what dispatchers did for ever", func(s *store) {
			s.maintain = func(ctx context.Context, p webhook.MaintainParams) error {
				p.ActivityBefore = time.Time{}
				return s.Store.Maintain(ctx, p)
			}
		}, []string{noticeRemoved}},
	}
}
