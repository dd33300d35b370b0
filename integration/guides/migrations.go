package guides

import (
	"context"
	"database/sql"
	"errors"
	"io"

	"ariga.io/atlas/sql/migrate"
	atlaspostgres "ariga.io/atlas/sql/postgres"
	"ariga.io/atlas/sql/sqltool"
	"github.com/pressly/goose/v3"

	"github.com/outhook/webhook/store/postgres"
)

// region: goose

// WebhookMigration lets goose bring the library's tables to the version of this release,
// as the step with the given number. Its way back leads to the version before, so write
// down both numbers: LatestVersion of the store in the old release and in the new one.
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

// region: atlas

// ApplyWithAtlas lets Atlas run the files of a directory in golang-migrate's format that it
// has not run yet, through its Go library; done is where it keeps what it has run.
func ApplyWithAtlas(ctx context.Context, db *sql.DB, dir string, done migrate.RevisionReadWriter) error {
	conn, err := db.Conn(ctx) // one connection: the files begin and commit by themselves
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	driver, err := atlaspostgres.Open(conn)
	if err != nil {
		return err
	}
	files, err := sqltool.NewGolangMigrateDir(dir)
	if err != nil {
		return err
	}
	executor, err := migrate.NewExecutor(driver, files, done, migrate.WithAllowDirty(true)) // beside your own tables
	if err != nil {
		return err
	}
	if err := executor.ExecuteN(ctx, 0); !errors.Is(err, migrate.ErrNoPendingFiles) {
		return err
	}
	return nil
}

// end region
