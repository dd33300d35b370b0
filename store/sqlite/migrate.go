package sqlite

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strconv"

	"github.com/outhook/webhook"
	"github.com/outhook/webhook/internal/migration"
)

//go:embed migrations/*.sql
var migrationFiles embed.FS

const (
	createHistory query = `
		CREATE TABLE IF NOT EXISTS {{prefix}}migration (
			version    INTEGER PRIMARY KEY,
			name       TEXT    NOT NULL,
			applied_at INTEGER NOT NULL
		)`

	selectHistoryTable query = `
		SELECT EXISTS (SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = '{{prefix}}migration' COLLATE NOCASE)`

	selectVersion query = `SELECT coalesce(max(version), 0) FROM {{prefix}}migration`

	insertVersion query = `
		INSERT INTO {{prefix}}migration (version, name, applied_at)
		VALUES (?, ?, CAST(strftime('%s', 'now') AS INTEGER) * 1000000)`

	deleteVersion query = `DELETE FROM {{prefix}}migration WHERE version = ?`
)

// Migrate brings the tables to the version that this code needs, and turns on
// write-ahead logging. It does nothing when they are there already, and may run
// in several processes at once.
//
// It first does what [Store.Check] does, and returns its [ConnectionError] before
// it creates anything. A database that was migrated by newer code gives
// [webhook.ErrSchemaNewer].
func (s *Store) Migrate(ctx context.Context) error {
	all, err := s.migrations()
	if err != nil {
		return err
	}
	if err := s.useWAL(ctx); err != nil {
		return err
	}
	if err := s.Check(ctx); err != nil {
		return err
	}
	if err := s.migrate(ctx, all, len(all)); err != nil {
		return err
	}
	return s.checkShared(ctx)
}

// MigrateTo brings the tables to the given version, up or down; 0 removes them
// with everything in them. Version numbers are those of the exported SQL.
func (s *Store) MigrateTo(ctx context.Context, version int) error {
	all, err := s.migrations()
	if err != nil {
		return err
	}
	return s.migrate(ctx, all, version)
}

// MigrationSQL writes what Migrate would run on an empty database to w, as plain
// SQL for other migration tools. Migrate then finds nothing left to do.
func (s *Store) MigrationSQL(w io.Writer) error {
	all, err := s.migrations()
	if err != nil {
		return err
	}
	steps, err := migration.Plan(all, 0, len(all))
	if err != nil {
		return fmt.Errorf("sqlite: exporting migrations: %w", err)
	}
	err = migration.Export(w, migration.Dialect{
		Prepare: []string{s.sql(createHistory)},
		Begin:   "BEGIN IMMEDIATE",
		Commit:  "COMMIT",
		Record:  s.recordSQL,
	}, steps)
	if err != nil {
		return fmt.Errorf("sqlite: exporting migrations: %w", err)
	}
	return nil
}

func (s *Store) recordSQL(step migration.Step) string {
	if step.Reverse {
		return fmt.Sprintf("DELETE FROM %smigration WHERE version = %d", s.prefix, step.Version)
	}
	return fmt.Sprintf("INSERT INTO %smigration (version, name, applied_at)\n"+
		"VALUES (%d, '%s', CAST(strftime('%%s', 'now') AS INTEGER) * 1000000)", s.prefix, step.Version, step.Name)
}

// CheckSchema implements [webhook.SystemStore].
func (s *Store) CheckSchema(ctx context.Context) error {
	all, err := s.migrations()
	if err != nil {
		return err
	}
	var version int
	err = s.read(ctx, "checking the schema", func(ctx context.Context) error {
		var err error
		version, err = s.version(ctx, s.db)
		return err
	})
	switch {
	case err != nil:
		return err
	case version < len(all):
		return fmt.Errorf("sqlite: %w: it has version %d, the code needs %d", webhook.ErrSchemaOutdated, version, len(all))
	case version > len(all):
		return fmt.Errorf("sqlite: %w: it has version %d, the code knows %d", webhook.ErrSchemaNewer, version, len(all))
	}
	return nil
}

func (s *Store) migrations() ([]migration.Migration, error) {
	files, err := fs.Sub(migrationFiles, "migrations")
	if err != nil {
		return nil, fmt.Errorf("sqlite: reading migrations: %w", err)
	}
	all, err := migration.Load(files, map[string]string{"prefix": s.prefix})
	if err != nil {
		return nil, fmt.Errorf("sqlite: reading migrations: %w", err)
	}
	return all, nil
}

// migrate takes all steps in one transaction. Whoever comes second waits for it,
// and finds the work done.
func (s *Store) migrate(ctx context.Context, all []migration.Migration, target int) error {
	return s.write(ctx, "migrating", nil, func(ctx context.Context, c *sql.Conn) error {
		version, err := s.version(ctx, c)
		if err != nil {
			return err
		}
		steps, err := migration.Plan(all, version, target)
		if errors.Is(err, migration.ErrNewer) {
			return fmt.Errorf("%w: it has version %d, the code knows %d", webhook.ErrSchemaNewer, version, len(all))
		}
		if err != nil || len(steps) == 0 {
			return err
		}
		if _, err := c.ExecContext(ctx, s.sql(createHistory)); err != nil {
			return err
		}
		for _, step := range steps {
			if err := s.step(ctx, c, step); err != nil {
				return fmt.Errorf("%s: %w", step, err)
			}
		}
		return nil
	})
}

func (s *Store) step(ctx context.Context, c *sql.Conn, step migration.Step) error {
	for i, statement := range step.Script().Statements {
		if _, err := c.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("statement %s: %w", strconv.Itoa(i+1), err)
		}
	}
	if step.Reverse {
		_, err := c.ExecContext(ctx, s.sql(deleteVersion), step.Version)
		return err
	}
	_, err := c.ExecContext(ctx, s.sql(insertVersion), step.Version, step.Name)
	return err
}

// version is 0 in a database that has no tables of ours.
func (s *Store) version(ctx context.Context, r reader) (int, error) {
	var exists bool
	if err := r.QueryRowContext(ctx, s.sql(selectHistoryTable)).Scan(&exists); err != nil || !exists {
		return 0, err
	}
	var version int
	err := r.QueryRowContext(ctx, s.sql(selectVersion)).Scan(&version)
	return version, err
}
