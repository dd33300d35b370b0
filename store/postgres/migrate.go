package postgres

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"time"

	"github.com/outhook/webhook"
	"github.com/outhook/webhook/internal/migration"
)

//go:embed migrations/*.sql
var migrationFiles embed.FS

// migrations are all that this code knows, in order.
type migrations []migration.Migration

func newMigrations(names map[string]string) (migrations, error) {
	files, err := fs.Sub(migrationFiles, "migrations")
	if err != nil {
		return nil, fmt.Errorf("postgres: %w", err)
	}
	all, err := migration.Load(files, names)
	if err != nil {
		return nil, fmt.Errorf("postgres: %w", err)
	}
	return all, nil
}

// Migrate brings the schema to the version that this code needs, and does
// nothing when it is there already. Several processes may call it at once: one
// migrates while the others wait. A database that a newer version of the
// library has migrated gives [webhook.ErrSchemaNewer].
//
// The role needs CREATE on the schema, or on the database when the schema does
// not exist. The pool needs two connections, since some migrations run outside of
// the transaction that holds the lock.
func (s *core) Migrate(ctx context.Context) error {
	return s.MigrateTo(ctx, len(s.migrations))
}

// MigrateTo brings the schema up or down to a version; 0 removes the library's
// tables and everything in them, but leaves the schema itself.
func (s *core) MigrateTo(ctx context.Context, version int) error {
	if err := s.migrateSteps(ctx, version); err != nil {
		return err
	}
	if version == 0 {
		s.partitions.forget()
		return nil
	}
	now, err := s.Now(ctx)
	if err != nil {
		return err
	}
	return s.makePartitions(ctx, now)
}

func (s *core) migrateSteps(ctx context.Context, version int) error {
	applied, err := s.applied(ctx, s.db)
	if err != nil {
		return fmt.Errorf("postgres: reading the schema's version: %w", err)
	}
	for done := len(applied) == version; !done; {
		if done, err = s.migrateOnce(ctx, version); err != nil {
			return fmt.Errorf("postgres: migrating to version %d: %w", version, err)
		}
	}
	return nil
}

// migrateOnce takes one step towards the version under a lock that ends with its
// transaction, and reports whether there was none left to take.
func (s *core) migrateOnce(ctx context.Context, version int) (done bool, err error) {
	locked := false
	err = s.db.atomically(ctx, func(tx conn) error {
		if locked, err = s.tryLock(ctx, tx, "migrations"); err != nil || !locked {
			return err
		}
		steps, err := s.planMigration(ctx, tx, version)
		if err != nil {
			return err
		}
		if len(steps) == 0 {
			done = true
			return nil
		}
		step := steps[0]
		if step.Script().Online {
			return s.runOnline(ctx, tx, step)
		}
		return runStatements(ctx, tx, step, s.historyStatement(step))
	})
	if err != nil || locked {
		return done, err
	}
	return false, pause(ctx, lockPause)
}

// runOnline runs a step on another connection while tx keeps the lock.
//
// Building an index concurrently waits for every snapshot that is older. A
// transaction between two statements has none, except that the extended protocol
// leaves the last query open, and with it its snapshot, until the next one: hence
// the statement without parameters, which drivers send by the simple protocol.
// For the same reason nobody waits for the lock inside of a transaction.
func (s *core) runOnline(ctx context.Context, tx conn, step migration.Step) error {
	if _, err := tx.exec(ctx, &statement{text: "SELECT 1"}); err != nil {
		return err
	}
	return runStatements(ctx, s.db, step, s.historyStatement(step))
}

func runStatements(ctx context.Context, c conn, step migration.Step, history string) error {
	for _, text := range append(step.Script().Statements, history) {
		if _, err := c.exec(ctx, &statement{text: text}); err != nil {
			return fmt.Errorf("%s: %w", step, err)
		}
	}
	return nil
}

// lockPause is how long a process waits before it asks for a lock again.
const lockPause = 50 * time.Millisecond

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// tryLock takes a lock of this schema that ends with tx, if nobody has it.
func (s *core) tryLock(ctx context.Context, tx conn, name string) (locked bool, err error) {
	err = collect(ctx, tx, &statement{text: `SELECT pg_try_advisory_xact_lock(hashtextextended($1::text, 0))`},
		func(r rows) error { return r.Scan(&locked) }, name+" in "+s.config.Schema)
	return locked, err
}

// tableExists looks into the catalog itself: to_regclass and casts go by a cache
// that, within a transaction, may not have heard of another's commit yet.
func (s *core) tableExists(ctx context.Context, c conn, table string) (exists bool, err error) {
	err = collect(ctx, c, &statement{text: `
		SELECT EXISTS (SELECT FROM pg_catalog.pg_class t JOIN pg_catalog.pg_namespace s ON s.oid = t.relnamespace
		               WHERE s.nspname = $1::text AND t.relname = $2::text)`},
		func(r rows) error { return r.Scan(&exists) }, s.config.Schema, table)
	return exists, err
}

// planMigration returns the steps to take, after making the place where the
// history is kept if there are any.
func (s *core) planMigration(ctx context.Context, tx conn, version int) ([]migration.Step, error) {
	applied, err := s.applied(ctx, tx)
	if err != nil {
		return nil, err
	}
	steps, err := s.plan(len(applied), version)
	if err != nil || len(steps) == 0 || len(applied) > 0 {
		return steps, err
	}

	// CREATE SCHEMA IF NOT EXISTS asks for a right on the database even when
	// there is nothing to create.
	exists := false
	err = collect(ctx, tx, &statement{text: `SELECT EXISTS (SELECT FROM pg_catalog.pg_namespace WHERE nspname = $1::text)`},
		func(r rows) error { return r.Scan(&exists) }, s.config.Schema)
	if err != nil {
		return nil, err
	}
	prepare := s.dialect().Prepare
	if exists {
		prepare = prepare[1:]
	}
	for _, text := range prepare {
		if _, err := tx.exec(ctx, &statement{text: text}); err != nil {
			return nil, err
		}
	}
	return steps, nil
}

func (s *core) plan(current, target int) ([]migration.Step, error) {
	steps, err := migration.Plan(s.migrations, current, target)
	if errors.Is(err, migration.ErrNewer) {
		return nil, fmt.Errorf("%w: version %d, the library knows %d", webhook.ErrSchemaNewer, current, len(s.migrations))
	}
	return steps, err
}

// applied returns when each version was applied, in order.
func (s *core) applied(ctx context.Context, c conn) ([]time.Time, error) {
	exists, err := s.tableExists(ctx, c, "migration")
	if err != nil || !exists {
		return nil, err
	}
	table := quote(s.config.Schema) + ".migration"
	var applied []time.Time
	err = collect(ctx, c, &statement{text: `SELECT applied_at FROM ` + table + ` ORDER BY version`}, func(r rows) error {
		var at time.Time
		err := r.Scan(&at)
		applied = append(applied, at.UTC())
		return err
	})
	return applied, err
}

func (s *core) historyStatement(step migration.Step) string {
	table := quote(s.config.Schema) + ".migration"
	switch {
	case !step.Reverse:
		return fmt.Sprintf("INSERT INTO %s (version, name) VALUES (%d, '%s')", table, step.Version, step.Name)
	case step.Version == 1:
		return "DROP TABLE " + table
	default:
		return fmt.Sprintf("DELETE FROM %s WHERE version = %d", table, step.Version)
	}
}

func (s *core) dialect() migration.Dialect {
	schema := quote(s.config.Schema)
	return migration.Dialect{
		Prepare: []string{
			"CREATE SCHEMA IF NOT EXISTS " + schema,
			"CREATE TABLE IF NOT EXISTS " + schema + `.migration (
    version    integer     NOT NULL PRIMARY KEY,
    name       text        NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now()
)`,
		},
		Begin:  "BEGIN",
		Commit: "COMMIT",
		Record: s.historyStatement,
	}
}

// MigrationStatus tells where the database's schema stands.
func (s *core) MigrationStatus(ctx context.Context) (webhook.MigrationStatus, error) {
	applied, err := s.applied(ctx, s.db)
	if err != nil {
		return webhook.MigrationStatus{}, fmt.Errorf("postgres: reading the schema's version: %w", err)
	}
	status := webhook.MigrationStatus{Current: len(applied), Latest: len(s.migrations)}
	for i, m := range s.migrations {
		info := webhook.MigrationInfo{Version: m.Version, Name: m.Name, Online: m.Up.Online}
		if i < len(applied) {
			info.AppliedAt = applied[i]
		}
		status.Migrations = append(status.Migrations, info)
	}
	return status, nil
}

// MigrationSQL writes the SQL that leads from one version to another to w, for
// tools such as goose, Atlas or psql: plain statements, each ended by a semicolon,
// in transactions where they can be. They keep the library's own record of
// versions as well, so [Store.Migrate] finds nothing to do afterwards. From 0
// starts with an empty database.
func (s *core) MigrationSQL(w io.Writer, from, to int) error {
	steps, err := s.plan(from, to)
	if err != nil {
		return fmt.Errorf("postgres: exporting migrations: %w", err)
	}
	dialect := s.dialect()
	if from > 0 {
		dialect.Prepare = nil
	}
	return migration.Export(w, dialect, steps)
}

// LatestVersion is the schema version that this code needs.
func (s *core) LatestVersion() int { return len(s.migrations) }

// CheckSchema implements [webhook.SystemStore].
func (s *core) CheckSchema(ctx context.Context) error {
	applied, err := s.applied(ctx, s.db)
	if err != nil {
		return fmt.Errorf("postgres: reading the schema's version: %w", err)
	}
	steps, err := s.plan(len(applied), len(s.migrations))
	if err != nil {
		return fmt.Errorf("postgres: %w", err)
	}
	if len(steps) > 0 {
		return fmt.Errorf("postgres: %w (version %d, need %d)", webhook.ErrSchemaOutdated, len(applied), len(s.migrations))
	}
	return nil
}
