package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/outhook/webhook/internal/vitals"
)

const (
	// noticeTimeout bounds one call of a callback.
	noticeTimeout = 10 * time.Second

	// A callback that fails is called again after noticeRetry, doubled each time up to
	// noticeRetryMax, until the notice is noticeStale.
	noticeRetry    = 5 * time.Second
	noticeRetryMax = time.Hour
	noticeStale    = 72 * time.Hour

	// noticeBatch is how many notices are told under one look.
	noticeBatch = 50

	// noticeInterval is how often it is looked for notices to tell.
	noticeInterval = 5 * time.Second

	// dutyNotify is the duty of telling them.
	dutyNotify = "notify"
)

// NotificationConfig says who is told what becomes of endpoints: see [NoticeKind].
// Notices are recorded in any case, for 30 days, and [Health.Notices] lists them.
type NotificationConfig struct {
	// Notify is called for each notice, one at a time, by one of the dispatchers on the
	// database that have it: at least once, and again, with the same [Notice.ID], when
	// it returned an error or panicked, or when the dispatcher died. Tries are 5 s
	// apart at first and an hour at last, for 72 hours. It should heed ctx, which ends
	// after 10 s: a call that does not return holds up all others, and the end of Run.
	// Nil means nobody is called.
	Notify func(ctx context.Context, n Notice) error

	// EventTenant makes operational events of notices: events of this tenant, with the
	// kind as their type and the notice's id as theirs, for whatever endpoints it has.
	// Notices about its own endpoints make none. Their payload is [NoticeEvent]. Empty
	// means none are made; with [Config.SingleTenant] none can be.
	//
	// Give the same to all dispatchers on one database.
	EventTenant string
}

// NoticeEvent is the payload of an operational event.
type NoticeEvent struct {
	ID         uuid.UUID  `json:"id"`
	Kind       NoticeKind `json:"kind"`
	EndpointID uuid.UUID  `json:"endpoint_id"`
	Tenant     string     `json:"tenant"`
	Streak     time.Time  `json:"streak"`
	CreatedAt  time.Time  `json:"created_at"`
	NoticeDetail
}

func (c *NotificationConfig) validate(limits eventLimits) *InvalidError {
	if c.EventTenant == "" {
		return nil
	}
	if limits.singleTenant {
		return invalid("EventTenant", "is set, but the host has a single tenant")
	}
	return limits.checkTenant("EventTenant", c.EventTenant)
}

var kindsOfFindings = [...]NoticeKind{
	vitals.StreakBegan:            NoticeFailing,
	vitals.StreakDay:              NoticeFailing24h,
	vitals.StreakEnded:            NoticeRecovered,
	vitals.Died:                   NoticeDead,
	vitals.BecameDegraded:         NoticeDegraded,
	vitals.ConfigurationSuspected: NoticeConfigurationSuspected,
	vitals.Flapped:                NoticeFlapping,
}

// noticeOf makes the notice of a finding.
func (r *run) noticeOf(t *target, v *vitals.State, f *vitals.Finding, now time.Time) (NoticeRecord, error) {
	d := NoticeDetail{Score: v.Score(), ConsecutiveFailures: v.Run.Failures}
	switch f.Kind {
	case vitals.StreakBegan, vitals.StreakDay:
		d.Status, d.Class = v.LastStatus, ErrorClass(v.LastClass)
	case vitals.Died:
		d.Status, d.Class, d.Dead = v.LastStatus, ErrorClass(v.LastClass), f.Dead
	case vitals.ConfigurationSuspected:
		d.Status = v.Suspected.Status
		d.Reason = fmt.Sprintf("nearly all of the latest failures are status %d", d.Status)
		if !v.Suspected.Rotated.IsZero() {
			d.Reason += ", since the secret was rotated at " + v.Suspected.Rotated.UTC().Format(time.RFC3339)
		}
	case vitals.BecameDegraded:
		d.Reason = "less than 80 % succeeded over 4 hours"
	case vitals.Flapped:
		d.Reason = "the circuit opened again shortly after it had closed"
	case vitals.StreakEnded:
	}
	return r.newNotice(t, kindsOfFindings[f.Kind], f.Streak, now, d)
}

// newNotice makes a notice, and its operational event if there are such.
func (r *run) newNotice(t *target, kind NoticeKind, streak, now time.Time, d NoticeDetail) (NoticeRecord, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return NoticeRecord{}, fmt.Errorf("make a notice id: %w", err)
	}
	detail, err := json.Marshal(d)
	if err != nil {
		return NoticeRecord{}, fmt.Errorf("write a notice: %w", err)
	}
	n := NoticeRecord{
		ID: id, EndpointID: t.record.ID, Tenant: t.record.Tenant, Kind: kind,
		Streak: streak.UTC().Truncate(time.Microsecond), CreatedAt: now, DueAt: now, Detail: detail,
	}
	operators := r.cfg.Notifications.EventTenant
	if operators == "" || operators == n.Tenant {
		return n, nil
	}
	payload, err := json.Marshal(NoticeEvent{
		ID: id, Kind: kind, EndpointID: n.EndpointID, Tenant: n.Tenant, Streak: n.Streak, CreatedAt: now, NoticeDetail: d,
	})
	if err != nil {
		return NoticeRecord{}, fmt.Errorf("write an operational event: %w", err)
	}
	n.Event = &EventRecord{
		ID: id, Tenant: operators, Type: string(kind), ResourceID: n.EndpointID.String(), Payload: payload, CreatedAt: now,
	}
	return n, nil
}

// notice records that something is to be told about an endpoint, unless it was already.
func (r *run) notice(ctx context.Context, id uuid.UUID, kind NoticeKind, streak time.Time, d NoticeDetail) error {
	t := r.registry.get(id)
	if t == nil {
		return nil
	}
	n, err := r.newNotice(t, kind, streak, r.d.clock.now(), d)
	if err != nil {
		return err
	}
	added, err := r.core.backend.AddNotices(ctx, []NoticeRecord{n})
	if err == nil && len(added) > 0 {
		r.noticed()
	}
	return err
}

// noticed wakes those who have to do with new notices.
func (r *run) noticed() {
	poke(r.told)
	if r.cfg.Notifications.EventTenant != "" {
		poke(r.fanOut.wake)
	}
}

// tell calls the callback for notices that are due, until ctx ends: of the dispatchers
// that have one, one at a time does.
func (r *run) tell(ctx context.Context) {
	for ctx.Err() == nil {
		if err := r.tellDue(ctx); err != nil && ctx.Err() == nil {
			r.core.log.WarnContext(ctx, "webhook: cannot tell notices", "error", err)
		}
		timer, stop := r.d.clock.clock.NewTimer(noticeInterval)
		select {
		case <-timer:
		case <-r.told:
		case <-ctx.Done():
		}
		stop()
	}
}

// tellDue takes the duty only if there is something to tell.
func (r *run) tellDue(ctx context.Context) error {
	some, err := r.core.backend.DueNotices(ctx, r.d.clock.now(), 1)
	if err != nil || len(some) == 0 {
		return err
	}
	return r.onDuty(ctx, dutyNotify, func(ctx context.Context) error {
		for {
			due, err := r.core.backend.DueNotices(ctx, r.d.clock.now(), noticeBatch)
			if err != nil || len(due) == 0 {
				return err
			}
			for i := range due {
				if err := r.tellOne(ctx, &due[i]); err != nil {
					return err
				}
			}
		}
	})
}

// tellOne tells one notice, and stores that it was told before the next one is.
func (r *run) tellOne(ctx context.Context, n *NoticeRecord) error {
	now := r.d.clock.now()
	err := errors.New("too old to be told")
	if now.Sub(n.CreatedAt) < noticeStale {
		n.Attempts++
		err = r.callBack(ctx, noticeFromRecord(n))
		if ctx.Err() != nil && err != nil {
			return ctx.Err() // cut off by our own end: not its failure
		}
		n.DueAt = r.d.clock.now().Add(min(noticeRetry<<min(n.Attempts-1, 16), noticeRetryMax))
	}
	if err == nil || now.Sub(n.CreatedAt) >= noticeStale {
		n.DueAt = time.Time{}
	}
	if err != nil {
		r.core.log.WarnContext(ctx, "webhook: notice not told", "notice", n.ID, "kind", n.Kind, "endpoint", n.EndpointID,
			"attempts", n.Attempts, "again_at", n.DueAt, "error", err)
	}
	settling, cancel := context.WithTimeout(context.WithoutCancel(ctx), giveBackTimeout)
	defer cancel()
	if err := r.core.backend.SettleNotices(settling, []NoticeRecord{*n}); err != nil {
		return fmt.Errorf("settle a notice: %w", err)
	}
	return nil
}

// callBack calls the host's callback. What it panics with may hold anything.
func (r *run) callBack(ctx context.Context, n Notice) (err error) {
	ctx, cancel := context.WithTimeout(ctx, noticeTimeout)
	defer cancel()
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panic in the callback: %T", v)
		}
	}()
	return r.cfg.Notifications.Notify(ctx, n)
}
