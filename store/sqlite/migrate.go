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

	selectHistory query = `SELECT version, applied_at FROM {{prefix}}migration ORDER BY version`

	insertVersion query = `
		INSERT INTO {{prefix}}migration (version, name, applied_at)
		VALUES (?, ?, CAST(strftime('%s', 'now') AS INTEGER) * 1000000)`

	deleteVersion query = `DELETE FROM {{prefix}}migration WHERE version = ?`

	dropHistory query = `DROP TABLE {{prefix}}migration`
)

// Migrate brings the tables to the version that this code needs, and turns on
// write-ahead logging. It does nothing when they are there already, and may run
// in several processes at once.
//
// It first does what [Store.Check] does, and returns its [ConnectionError] before
// it creates anything. A database that was migrated by newer code gives
// [webhook.ErrSchemaNewer].
func (s *Store) Migrate(ctx context.Context) error {
	if err := s.useWAL(ctx); err != nil {
		return err
	}
	if err := s.Check(ctx); err != nil {
		return err
	}
	if err := s.migrate(ctx, len(s.migrations)); err != nil {
		return err
	}
	return s.checkShared(ctx)
}

// MigrateTo brings the tables to the given version, up or down; 0 removes them
// with everything in them. Version numbers are those of the exported SQL.
func (s *Store) MigrateTo(ctx context.Context, version int) error {
	return s.migrate(ctx, version)
}

// LatestVersion is the version that this code needs.
func (s *Store) LatestVersion() int { return len(s.migrations) }

// MigrationStatus tells where the database's tables stand.
func (s *Store) MigrationStatus(ctx context.Context) (webhook.MigrationStatus, error) {
	status := webhook.MigrationStatus{Latest: len(s.migrations)}
	for _, m := range s.migrations {
		status.Migrations = append(status.Migrations, webhook.MigrationInfo{Version: m.Version, Name: m.Name})
	}
	err := s.read(ctx, "reading the schema's version", func(ctx context.Context) error {
		var err error
		if status.Current, err = s.version(ctx, s.db); err != nil || status.Current == 0 {
			return err
		}
		rows, err := s.db.QueryContext(ctx, s.sql(selectHistory))
		return scanAll(rows, err, func(rows *sql.Rows) error {
			var version int
			var at int64
			if err := rows.Scan(&version, &at); err != nil {
				return err
			}
			if version >= 1 && version <= len(status.Migrations) {
				status.Migrations[version-1].AppliedAt = fromMicros(at)
			}
			return nil
		})
	})
	return status, err
}

// MigrationSQL writes the SQL that leads from one version to another to w, for other
// migration tools: plain statements, each ended by a semicolon, in a transaction for
// each step. They keep the library's own record of versions as well, so [Store.Migrate]
// finds nothing to do afterwards. From 0 starts with an empty database.
func (s *Store) MigrationSQL(w io.Writer, from, to int) error {
	steps, err := s.plan(from, to)
	if err != nil {
		return fmt.Errorf("sqlite: exporting migrations: %w", err)
	}
	dialect := migration.Dialect{Begin: "BEGIN IMMEDIATE", Commit: "COMMIT", Record: s.recordSQL}
	if from == 0 {
		dialect.Prepare = []string{s.sql(createHistory)}
	}
	if err := migration.Export(w, dialect, steps); err != nil {
		return fmt.Errorf("sqlite: exporting migrations: %w", err)
	}
	return nil
}

func (s *Store) plan(current, target int) ([]migration.Step, error) {
	steps, err := migration.Plan(s.migrations, current, target)
	if errors.Is(err, migration.ErrNewer) {
		return nil, fmt.Errorf("%w: it has version %d, the code knows %d", webhook.ErrSchemaNewer, current, len(s.migrations))
	}
	return steps, err
}

func (s *Store) recordSQL(step migration.Step) string {
	if step.Reverse && step.Version == 1 {
		return s.sql(dropHistory)
	}
	if step.Reverse {
		return fmt.Sprintf("DELETE FROM %smigration WHERE version = %d", s.prefix, step.Version)
	}
	return fmt.Sprintf("INSERT INTO %smigration (version, name, applied_at)\n"+
		"VALUES (%d, '%s', CAST(strftime('%%s', 'now') AS INTEGER) * 1000000)", s.prefix, step.Version, step.Name)
}

// CheckSchema implements [webhook.SystemStore].
func (s *Store) CheckSchema(ctx context.Context) error {
	var version int
	err := s.read(ctx, "checking the schema", func(ctx context.Context) error {
		var err error
		version, err = s.version(ctx, s.db)
		return err
	})
	switch {
	case err != nil:
		return err
	case version < len(s.migrations):
		return fmt.Errorf("sqlite: %w: it has version %d, the code needs %d", webhook.ErrSchemaOutdated, version, len(s.migrations))
	case version > len(s.migrations):
		return fmt.Errorf("sqlite: %w: it has version %d, the code knows %d", webhook.ErrSchemaNewer, version, len(s.migrations))
	}
	return nil
}

func loadMigrations(prefix string) ([]migration.Migration, error) {
	files, err := fs.Sub(migrationFiles, "migrations")
	if err != nil {
		return nil, fmt.Errorf("sqlite: reading migrations: %w", err)
	}
	all, err := migration.Load(files, map[string]string{"prefix": prefix})
	if err != nil {
		return nil, fmt.Errorf("sqlite: reading migrations: %w", err)
	}
	return all, nil
}

// migrate takes all steps in one transaction. Whoever comes second waits for it,
// and finds the work done.
func (s *Store) migrate(ctx context.Context, target int) error {
	return s.write(ctx, "migrating", nil, func(ctx context.Context, c *sql.Conn) error {
		version, err := s.version(ctx, c)
		if err != nil {
			return err
		}
		steps, err := s.plan(version, target)
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
	if step.Reverse && step.Version == 1 {
		_, err := c.ExecContext(ctx, s.sql(dropHistory))
		return err
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
