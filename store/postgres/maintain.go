package postgres

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outhook/webhook"
)

const (
	// daysAhead is how many days of partitions are kept ready: a week of
	// dispatchers standing still costs nothing.
	daysAhead = 7
	// partitionTries and partitionPause bound how long Maintain tries for a lock
	// that the log's readers and writers hold. Each try queues for lockTimeout
	// at most, and everybody else behind it.
	partitionTries = 5
	partitionPause = 200 * time.Millisecond
	lockTimeout    = "100ms"

	limitLockWait = `SET LOCAL lock_timeout = '` + lockTimeout + `'`
)

// family is a table that is partitioned by day.
type family struct{ table, column string }

var families = [...]family{
	{"attempt", "started_at"},
	{"delivery_dead", "finished_at"},
	{"delivery_log", "finished_at"},
}

// partition is one family's table for one day (UTC).
type partition struct {
	family
	day time.Time
}

func (p partition) name() string { return p.table + p.day.Format("_20060102") }

func (p partition) same(other partition) bool {
	return p.table == other.table && p.day.Equal(other.day)
}

// partitionKeeper remembers what need not be looked at again.
type partitionKeeper struct {
	mu sync.Mutex // protects settled
	// settled holds the partitions that exist, and those that cannot be made
	// because rows of their day are in the default partition already.
	settled map[string]bool
}

func newPartitionKeeper() *partitionKeeper {
	return &partitionKeeper{settled: make(map[string]bool)}
}

func (k *partitionKeeper) open(now time.Time) []partition {
	k.mu.Lock()
	defer k.mu.Unlock()
	today := now.UTC().Truncate(24 * time.Hour)
	var open []partition
	for ahead := range daysAhead + 1 {
		for _, f := range families {
			p := partition{f, today.AddDate(0, 0, ahead)}
			if !k.settled[p.name()] {
				open = append(open, p)
			}
		}
	}
	return open
}

func (k *partitionKeeper) settle(p partition) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.settled[p.name()] = true
}

// forget is called when the tables are gone.
func (k *partitionKeeper) forget() {
	k.mu.Lock()
	defer k.mu.Unlock()
	clear(k.settled)
}

// Maintain implements [webhook.SystemStore]. Days are counted six hours after their
// end, and logs leave by the day: a partition goes when all of its day has been kept
// for long enough.
//
// One part that fails does not keep the others from being done, except that nothing
// is removed that is not counted.
func (s *core) Maintain(ctx context.Context, p webhook.MaintainParams) error {
	return errors.Join(
		s.makePartitions(ctx, p.Now),
		s.maintainLogs(ctx, p),
		s.removeEvents(ctx, p.EventsBefore),
		s.removeNotices(ctx, p),
		s.removeVitals(ctx, p.DeletedBefore),
		s.removeOrderHolds(ctx, p.Now),
		s.removeReplayJobs(ctx, p.EventsBefore),
	)
}

// makePartitions makes the partitions of the logs for today and the week ahead. Rows
// that arrive where one is missing go to the default partition and stay there; a day
// that has begun so keeps to it.
func (s *core) makePartitions(ctx context.Context, now time.Time) error {
	for _, p := range s.partitions.open(now) {
		settled, err := s.makePartition(ctx, p)
		if err != nil {
			return fmt.Errorf("postgres: making partition %s: %w", p.name(), err)
		}
		if settled {
			s.partitions.settle(p)
		}
	}
	return nil
}

// maintainLogs counts what happened and then removes what is old.
func (s *core) maintainLogs(ctx context.Context, p webhook.MaintainParams) error {
	attached, detached, err := s.listPartitions(ctx)
	if err != nil {
		return fmt.Errorf("postgres: listing partitions: %w", err)
	}
	counted, err := s.countDays(ctx, p.Now, attached)
	if err != nil {
		return err
	}
	for _, d := range detached { // by a process that ended before it could drop it
		if d.day.Before(counted) {
			if err := s.dropTable(ctx, d.name()); err != nil {
				return fmt.Errorf("postgres: dropping %s: %w", d.name(), err)
			}
		}
	}
	return s.removeLogs(ctx, newExpiry(p, counted), attached)
}

// makePartition reports whether the partition need not be looked at again.
func (s *core) makePartition(ctx context.Context, p partition) (settled bool, err error) {
	done, err := s.whenUnlocked(ctx, func(tx conn) (bool, error) { return s.makePartitionIn(ctx, tx, p) })
	if sqlState(err) == checkViolation { // the default partition holds rows of that day
		return true, nil
	}
	return done, err
}

// whenUnlocked runs fn in a transaction, and a few times again while it finds locked
// what it needs: then it returns false, or the server's error.
func (s *core) whenUnlocked(ctx context.Context, fn func(tx conn) (done bool, err error)) (done bool, err error) {
	for try := 1; ; try++ {
		err := s.db.atomically(ctx, func(tx conn) (err error) {
			done, err = fn(tx)
			return err
		})
		switch state := sqlState(err); {
		case err == nil && done:
			return true, nil
		case err == nil, state == lockNotAvailable, state == deadlockDetected:
			if try == partitionTries {
				return false, err
			}
		default:
			return false, err
		}
		if err := pause(ctx, partitionPause); err != nil {
			return false, err
		}
	}
}

// makePartitionIn reports whether the partition is there. Several processes
// maintain: the first makes it, the others find it, or come back.
func (s *core) makePartitionIn(ctx context.Context, tx conn, p partition) (done bool, err error) {
	parent, table := s.table(p.table), s.table(p.name())

	if locked, err := s.tryLock(ctx, tx, p.name()); err != nil || !locked {
		return false, err
	}
	if exists, err := s.tableExists(ctx, tx, p.name()); err != nil || exists {
		return exists, err
	}

	// Creating a partition in place would lock the parent against everyone.
	// A table that is attached locks out only changes to the parent, and the
	// default partition, for as long as it takes to see that it is empty.
	for _, text := range []string{
		limitLockWait,
		`CREATE TABLE ` + table + ` (LIKE ` + parent + ` INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING INDEXES)`,
		`ALTER TABLE ` + parent + ` ATTACH PARTITION ` + table +
			` FOR VALUES FROM ('` + midnight(p.day) + `') TO ('` + midnight(p.day.AddDate(0, 0, 1)) + `')`,
	} {
		if _, err := tx.exec(ctx, &statement{text: text}); err != nil {
			return false, err
		}
	}
	return true, nil
}

// table is the full name of one of the store's tables.
func (s *core) table(name string) string { return quote(s.config.Schema) + "." + quote(name) }

func midnight(day time.Time) string { return day.Format("2006-01-02") + " 00:00:00+00" }

// SQLSTATEs that the store acts upon.
const (
	checkViolation   = "23514"
	lockNotAvailable = "55P03"
	deadlockDetected = "40P01"
)

// sqlState returns the SQLSTATE of an error of any driver that tells it, or "".
func sqlState(err error) string {
	if err == nil {
		return ""
	}
	if pgx, ok := errors.AsType[*pgconn.PgError](err); ok {
		return pgx.Code
	}
	var other interface{ SQLState() string }
	if errors.As(err, &other) {
		return other.SQLState()
	}
	return ""
}
