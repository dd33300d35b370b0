package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/outhook/webhook/internal/scheduler"
	"github.com/outhook/webhook/internal/vitals"
)

const (
	// watchInterval is how often somebody looks at the endpoints with trouble.
	watchInterval = time.Minute

	// dutyHealth is the duty of doing so.
	dutyHealth = "health"

	// secretOldAfter is from when on a signing secret is old (docs/design.md §6), and
	// secretsInterval how often it is looked for such.
	secretOldAfter  = 90 * day
	secretsInterval = time.Hour

	// disabledWithin is how long ago an endpoint may have been disabled to be told of:
	// not longer than notices are kept, or it would be told again.
	disabledWithin = noticesKept / 2
)

// healthWatch is what the one who looks remembers, to ask the database less. It is
// owned by lookAfterHealth.
type healthWatch struct {
	r         *run
	secretsAt time.Time               // when secrets were last looked at
	told      map[uuid.UUID]time.Time // endpoint → the disabling that is a notice by now
	secrets   map[uuid.UUID]time.Time // endpoint → the old secret that is one
}

// lookAfterHealth looks at endpoints with trouble now and then, and when one was
// disabled, until ctx ends: of the dispatchers on one database one at a time.
func (r *run) lookAfterHealth(ctx context.Context) {
	w := &healthWatch{r: r, told: make(map[uuid.UUID]time.Time), secrets: make(map[uuid.UUID]time.Time)}
	for ctx.Err() == nil {
		if err := r.onDuty(ctx, dutyHealth, w.look); err != nil && ctx.Err() == nil {
			r.core.log.WarnContext(ctx, "webhook: cannot look after endpoints' health", "error", err)
		}
		timer, stop := r.d.clock.clock.NewTimer(watchInterval)
		select {
		case <-timer:
		case <-r.disabled:
		case <-ctx.Done():
		}
		stop()
	}
}

func (t *target) isDisabled() bool {
	return t.record.State == EndpointDisabled && t.record.DeletedAt.IsZero()
}

// look finds what no single attempt shows: that something has lasted too long.
func (w *healthWatch) look(ctx context.Context) error {
	now := w.r.d.clock.now()
	errs := []error{w.lookAtUnwell(ctx, now), w.tellOfDisabled(ctx, now)}
	if now.Sub(w.secretsAt) >= secretsInterval || now.Before(w.secretsAt) {
		err := w.tellOfSecrets(ctx, now)
		if err == nil {
			w.secretsAt = now
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// lookAtUnwell looks at the endpoints with trouble, page by page.
func (w *healthWatch) lookAtUnwell(ctx context.Context, now time.Time) error {
	p := ListUnwellParams{Scope: AllTenants(), Level: LevelUnsteady, Limit: vitalsBatch}
	for {
		ids, err := w.r.core.backend.ListUnwell(ctx, p)
		if err != nil {
			return fmt.Errorf("list endpoints with trouble: %w", err)
		}
		if err := w.lookAt(ctx, ids, now); err != nil {
			return err
		}
		if len(ids) < p.Limit {
			return nil
		}
		p.After = ids[len(ids)-1]
	}
}

func (w *healthWatch) lookAt(ctx context.Context, ids []uuid.UUID, now time.Time) error {
	r := w.r
	loaded, err := r.core.backend.LoadVitals(ctx, ids)
	if err != nil {
		return fmt.Errorf("load the vitals of %d endpoints: %w", len(ids), err)
	}
	open, err := w.circuitsOpen(ctx, ids, now)
	if err != nil {
		return err
	}
	var p SaveVitalsParams
	for i := range loaded {
		t := r.registry.get(loaded[i].EndpointID)
		if t == nil || !t.sendable() {
			continue
		}
		v := readVitals(&loaded[i])
		if !v.Epoch.Equal(t.record.StateChangedAt) {
			continue // nothing is known since it was resumed or enabled
		}
		if findings := v.Apply(nil, r.rules(t.record.ID, now, &v)); len(findings) > 0 {
			v.Mark = 0
			if err := r.addVitals(&p, &loaded[i], &v, findings, now); err != nil {
				return err
			}
		}
		w.judge(ctx, t, &v, open[t.record.ID], now)
	}
	// What another dispatcher has changed meanwhile is looked at again in a minute.
	if _, err := r.core.backend.SaveVitals(ctx, p); err != nil {
		return fmt.Errorf("save vitals: %w", err)
	}
	if len(p.Notices) > 0 {
		r.noticed()
	}
	return nil
}

// judge disables an endpoint that has failed for too long.
func (w *healthWatch) judge(ctx context.Context, t *target, v *vitals.State, open, now time.Time) {
	reason, ok := w.r.cfg.AutoDisable.verdict(v, open, now, retrySpan(w.r.retryPolicy(t)))
	if !ok {
		return
	}
	if err := w.r.core.endpoints.disableSince(ctx, t.record.ID, t.record.StateChangedAt, reason); err != nil {
		w.r.core.log.ErrorContext(ctx, "webhook: endpoint not disabled", "endpoint", t.record.ID, "reason", reason, "error", err)
		return
	}
	w.r.core.log.WarnContext(ctx, "webhook: endpoint disabled", "endpoint", t.record.ID, "tenant", t.record.Tenant, "reason", reason)
}

// circuitsOpen returns since when circuits have been open, if that matters.
func (w *healthWatch) circuitsOpen(ctx context.Context, ids []uuid.UUID, now time.Time) (map[uuid.UUID]time.Time, error) {
	if w.r.cfg.AutoDisable.CircuitOpenFor <= 0 || len(ids) == 0 {
		return nil, nil
	}
	rows, err := w.r.core.backend.ReadHealth(ctx, ReadHealthParams{Now: now, Endpoints: ids})
	if err != nil {
		return nil, fmt.Errorf("read the circuits of %d endpoints: %w", len(ids), err)
	}
	open := make(map[uuid.UUID]time.Time)
	for i := range rows {
		var snap scheduler.Snapshot
		if json.Unmarshal(rows[i].Circuit, &snap) == nil && snap.Circuit.State != scheduler.Closed {
			open[rows[i].EndpointID] = snap.Circuit.OpenedAt
		}
	}
	return open, nil
}

// tellOfDisabled makes a notice of each disabling, by whomever.
func (w *healthWatch) tellOfDisabled(ctx context.Context, now time.Time) error {
	return w.add(ctx, NoticeDisabled, w.told, now, func(t *target) (streak time.Time, detail NoticeDetail) {
		at := t.record.StateChangedAt
		if !t.isDisabled() || now.Sub(at) > disabledWithin {
			return time.Time{}, NoticeDetail{}
		}
		return at, NoticeDetail{Reason: t.record.StateReason}
	})
}

// tellOfSecrets makes a notice of each secret that has become old.
func (w *healthWatch) tellOfSecrets(ctx context.Context, now time.Time) error {
	return w.add(ctx, NoticeSecretOld, w.secrets, now, func(t *target) (streak time.Time, detail NoticeDetail) {
		at := t.secretAt()
		// Told once, so not again when the notice is forgotten.
		if age := now.Sub(at); at.IsZero() || age < secretOldAfter || age > secretOldAfter+disabledWithin || t.isDisabled() {
			return time.Time{}, NoticeDetail{}
		}
		return at, NoticeDetail{Reason: fmt.Sprintf("the signing secret is %d days old", int(now.Sub(at)/day))}
	})
}

// add adds a notice for each endpoint for which find returns a streak that is not
// known to be a notice already.
func (w *healthWatch) add(ctx context.Context, kind NoticeKind, known map[uuid.UUID]time.Time, now time.Time,
	find func(*target) (time.Time, NoticeDetail),
) error {
	var notices []NoticeRecord
	for _, t := range w.r.registry.all() {
		streak, detail := find(t)
		if streak.IsZero() || known[t.record.ID].Equal(streak) {
			continue
		}
		n, err := w.r.newNotice(t, kind, streak, now, detail)
		if err != nil {
			return err
		}
		notices = append(notices, n)
	}
	for len(notices) > 0 {
		some := notices[:min(len(notices), vitalsBatch)]
		notices = notices[len(some):]
		added, err := w.r.core.backend.AddNotices(ctx, some)
		if err != nil {
			return fmt.Errorf("add %d notices: %w", len(some), err)
		}
		for i := range some {
			known[some[i].EndpointID] = some[i].Streak
		}
		if len(added) > 0 {
			w.r.noticed()
		}
	}
	return nil
}
