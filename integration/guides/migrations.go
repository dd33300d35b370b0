package guides

import (
	"context"
	"database/sql"
	"io"

	"github.com/pressly/goose/v3"

	"github.com/outhook/webhook/store/postgres"
)

// region: goose

// WebhookMigration lets goose bring the library's tables to the version of this release,
// as the step with the given number. Its way back leads to the version before, so write
// down both numbers: they are in the release notes.
func WebhookMigration(step int64, db *sql.DB, before, after int) *goose.Migration {
	store := postgres.NewSQL(db)
	to := func(version int) *goose.GoFunc {
		return &goose.GoFunc{RunDB: func(ctx context.Context, _ *sql.DB) error { return store.MigrateTo(ctx, version) }}
	}
	return goose.NewGoMigration(step, to(after), to(before))
}

// end region

// region: migration-sql

// ExportMigration writes plain SQL that leads from one version of the library's tables
// to another: up when to is the greater one, down otherwise; 0 is an empty database.
func ExportMigration(w io.Writer, db *sql.DB, from, to int) error {
	return postgres.NewSQL(db).MigrationSQL(w, from, to)
}

// end region
