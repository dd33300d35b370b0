package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/outhook/webhook"
)

// keepForever is how long an attempt is left alone whose delivery is kept for ever.
const keepForever = 30 * 24 * time.Hour

// expiry says which days of the logs have been kept for long enough: those before a
// day, none for a zero one. They have been counted.
type expiry struct {
	now             time.Time
	delivered, dead time.Time
	// deliveredFor and deadFor are for how long deliveries are kept.
	deliveredFor, deadFor time.Duration
}

func newExpiry(p webhook.MaintainParams, counted time.Time) expiry {
	e := expiry{now: p.Now, deliveredFor: keepForever, deadFor: keepForever}
	if !p.DeliveriesBefore.IsZero() {
		e.delivered, e.deliveredFor = earlier(dayOf(p.DeliveriesBefore), counted), p.Now.Sub(p.DeliveriesBefore)
	}
	if !p.DeadBefore.IsZero() {
		e.dead, e.deadFor = earlier(dayOf(p.DeadBefore), counted), p.Now.Sub(p.DeadBefore)
	}
	return e
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// of is the day before which a family's rows may go. Attempts go as soon as some
// deliveries do: those of deliveries that stay are kept in another table.
func (e expiry) of(f family) time.Time {
	switch {
	case f == families[1]:
		return e.dead
	case f == families[2], e.delivered.After(e.dead):
		return e.delivered
	default:
		return e.dead
	}
}

// Partitions by name: what is not attached is left over.
const listPartitionsSQL = `
SELECT t.relname, EXISTS (SELECT FROM pg_catalog.pg_inherits i WHERE i.inhrelid = t.oid)
FROM pg_catalog.pg_class t JOIN pg_catalog.pg_namespace s ON s.oid = t.relnamespace
WHERE s.nspname = $1::text AND t.relkind = 'r' AND t.relname ~ '^(attempt|delivery_dead|delivery_log)_[0-9]{8}$'
ORDER BY t.relname`

func (s *core) listPartitions(ctx context.Context) (attached, detached []partition, err error) {
	err = collect(ctx, s.db, &statement{text: listPartitionsSQL}, func(r rows) error {
		var name string
		var isAttached bool
		if err := r.Scan(&name, &isAttached); err != nil {
			return err
		}
		for _, f := range families {
			day, err := time.Parse("_20060102", name[min(len(f.table), len(name)):])
			if p := (partition{f, day}); err != nil || p.name() != name {
				continue
			} else if isAttached {
				attached = append(attached, p)
			} else {
				detached = append(detached, p)
			}
		}
		return nil
	}, s.config.Schema)
	return attached, detached, err
}

// removeLogs removes old deliveries, and then the attempts of those that are gone.
func (s *core) removeLogs(ctx context.Context, e expiry, attached []partition) error {
	for _, f := range [...]family{families[1], families[2], families[0]} {
		for _, p := range attached {
			if p.family != f || p.day.AddDate(0, 0, 1).After(e.of(f)) {
				continue
			}
			if err := s.dropPartition(ctx, e, p); err != nil {
				return fmt.Errorf("postgres: dropping partition %s: %w", p.name(), err)
			}
		}
		if err := s.emptyDefault(ctx, e, f); err != nil {
			return fmt.Errorf("postgres: removing old rows from %s_default: %w", f.table, err)
		}
	}
	if err := s.recheckKept(ctx, e); err != nil {
		return fmt.Errorf("postgres: removing kept attempts: %w", err)
	}
	return nil
}

// dropPartition detaches first, which needs a lock on the whole family, but for a
// moment only; the table may take its time to go.
func (s *core) dropPartition(ctx context.Context, e expiry, p partition) error {
	if p.family == families[0] {
		if err := s.keepAttempts(ctx, e, p); err != nil {
			return fmt.Errorf("keeping attempts: %w", err)
		}
	}
	done, err := s.whenUnlocked(ctx, func(tx conn) (done bool, err error) {
		if locked, err := s.tryLock(ctx, tx, p.name()); err != nil || !locked {
			return false, err
		}
		for _, text := range []string{limitLockWait, `ALTER TABLE ` + s.table(p.table) + ` DETACH PARTITION ` + s.table(p.name())} {
			if _, err := tx.exec(ctx, &statement{text: text}); err != nil {
				return false, err
			}
		}
		return true, nil
	})
	switch {
	case sqlState(err) == undefinedTable: // another process was faster
		return nil
	case err != nil || !done:
		return err
	}
	return s.dropTable(ctx, p.name())
}

func (s *core) dropTable(ctx context.Context, name string) error {
	_, err := s.whenUnlocked(ctx, func(tx conn) (bool, error) {
		for _, text := range []string{limitLockWait, `DROP TABLE IF EXISTS ` + s.table(name)} {
			if _, err := tx.exec(ctx, &statement{text: text}); err != nil {
				return false, err
			}
		}
		return true, nil
	})
	return err
}

const attemptColumns = `delivery_id, event_id, endpoint_id, lease_token, started_at, latency_ns, number, status, truncated, late,
       tenant, class, error, location, excerpt, body_hash`

// kept is a query for the deliveries that there still are and when their attempts
// are to be looked at again; which says of which ids.
func (s *core) kept(which string) string {
	return `
SELECT id, $2::timestamptz + interval '1 day' AS check_at FROM ` + s.table("delivery") + ` WHERE ` + which + `
UNION ALL
SELECT id, finished_at + make_interval(secs => $3::float8) + interval '1 day' FROM ` + s.table("delivery_log") + ` WHERE ` + which + `
UNION ALL
SELECT id, finished_at + make_interval(secs => $4::float8) + interval '1 day' FROM ` + s.table("delivery_dead") + ` WHERE ` + which
}

// keepAttempts copies from a partition that is to go the attempts whose delivery
// stays: dead ones, and those that took days or wait still. It may be repeated. It
// goes through the partition in the order of deliveries, and so meets those that stay
// as ranges of an index in each of their tables.
func (s *core) keepAttempts(ctx context.Context, e expiry, p partition) error {
	source := s.table(p.name())
	rest := `SELECT delivery_id FROM ` + source + ` WHERE delivery_id > $1::uuid ORDER BY delivery_id`
	// The first, the last of a slice, and the last of all. Rides on the partition's
	// index by delivery.
	slice := statement{replan: true, text: `SELECT (` + rest + ` LIMIT 1), (` + rest + ` OFFSET $2::integer LIMIT 1), (` + rest + ` DESC LIMIT 1)`}
	keep := statement{replan: true, text: `
WITH kept AS MATERIALIZED (` + s.kept(`id >= $1::uuid AND id <= $5::uuid`) + `)
INSERT INTO ` + s.table("attempt_kept") + ` (` + attemptColumns + `, check_at)
SELECT a.*, greatest(k.check_at, $2::timestamptz + interval '1 day')
FROM kept k CROSS JOIN LATERAL (
    SELECT ` + attemptColumns + ` FROM ` + source + ` WHERE delivery_id = k.id
    OFFSET 0
) a
ON CONFLICT DO NOTHING`}
	var after uuid.UUID
	return s.inBatches(ctx, func() (more bool, err error) {
		var first, end, last *uuid.UUID
		if err := collect(ctx, s.db, &slice, func(r rows) error { return r.Scan(&first, &end, &last) }, s.db.id(after), countSlice-1); err != nil {
			return false, err
		}
		if first == nil {
			return false, nil
		}
		if more = end != nil; !more {
			end = last
		}
		_, err = s.db.exec(ctx, &keep, s.db.id(*first), micros(e.now), e.deliveredFor.Seconds(), e.deadFor.Seconds(), s.db.id(*end))
		after = *end
		return more, err
	})
}

// emptyDefault removes old rows from a default partition, which has some when nobody
// made a partition in time.
func (s *core) emptyDefault(ctx context.Context, e expiry, f family) error {
	before := e.of(f)
	if before.IsZero() {
		return nil
	}
	table := s.table(f.table + "_default")
	// Rides on the time index of the default partition.
	gone := `DELETE FROM ` + table + ` WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM ` + table + ` WHERE ` + f.column + ` < $1::timestamptz ORDER BY ` + f.column + ` LIMIT ` + fmt.Sprint(removedAtOnce) + `
    FOR UPDATE SKIP LOCKED))`
	q, args := statement{replan: true, text: gone}, []any{before}
	if f == families[0] {
		q.text = `
WITH gone AS MATERIALIZED (` + gone + ` RETURNING ` + attemptColumns + `),
kept AS MATERIALIZED (` + s.kept(`id = ANY (ARRAY(SELECT delivery_id FROM gone))`) + `),
moved AS (
    INSERT INTO ` + s.table("attempt_kept") + ` (` + attemptColumns + `, check_at)
    SELECT g.*, greatest(k.check_at, $2::timestamptz + interval '1 day') FROM gone g JOIN kept k ON k.id = g.delivery_id
    ON CONFLICT DO NOTHING
)
SELECT count(*) FROM gone`
		args = append(args, micros(e.now), e.deliveredFor.Seconds(), e.deadFor.Seconds())
		return s.inBatches(ctx, func() (bool, error) {
			var n int
			err := collect(ctx, s.db, &q, func(r rows) error { return r.Scan(&n) }, args...)
			return n == removedAtOnce, err
		})
	}
	return s.inBatches(ctx, func() (bool, error) {
		n, err := s.db.exec(ctx, &q, args...)
		return n == removedAtOnce, err
	})
}

// recheckKept removes kept attempts whose delivery is gone.
func (s *core) recheckKept(ctx context.Context, e expiry) error {
	kept := s.table("attempt_kept")
	// Rides on attempt_kept_check_idx.
	q := statement{replan: true, text: `
WITH due AS MATERIALIZED (
    SELECT ctid AS at, delivery_id FROM ` + kept + ` WHERE check_at <= $2::timestamptz
    ORDER BY check_at LIMIT $1::integer
    FOR UPDATE SKIP LOCKED
), kept AS MATERIALIZED (` + s.kept(`id = ANY (ARRAY(SELECT delivery_id FROM due))`) + `),
gone AS (
    DELETE FROM ` + kept + ` WHERE ctid = ANY (ARRAY(SELECT at FROM due WHERE delivery_id NOT IN (SELECT id FROM kept)))
), later AS (
    UPDATE ` + kept + ` a SET check_at = greatest(k.check_at, $2::timestamptz + interval '1 day')
    FROM kept k
    WHERE a.ctid = ANY (ARRAY(SELECT at FROM due WHERE delivery_id IN (SELECT id FROM kept))) AND a.delivery_id = k.id
)
SELECT count(*) FROM due`}
	return s.inBatches(ctx, func() (bool, error) {
		var n int
		err := collect(ctx, s.db, &q, func(r rows) error { return r.Scan(&n) },
			removedAtOnce, micros(e.now), e.deliveredFor.Seconds(), e.deadFor.Seconds())
		return n == removedAtOnce, err
	})
}
