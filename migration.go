package webhook

import (
	"context"
	"io"
	"time"
)

// Migrator is what the stores that keep their tables in a database of SQL have
// beside the [Store]: what a program needs that migrates for others.
type Migrator interface {
	// Migrate brings the schema to the version that this code needs, and does nothing
	// when it is there already. Several processes may call it at once.
	Migrate(ctx context.Context) error

	// MigrateTo brings the schema up or down to a version; 0 removes the library's
	// tables and everything in them.
	MigrateTo(ctx context.Context, version int) error

	// MigrationStatus tells where the database's schema stands.
	MigrationStatus(ctx context.Context) (MigrationStatus, error)

	// MigrationSQL writes the SQL that leads from one version to another to w, for
	// other migration tools. It keeps the library's own record of versions as well, so
	// that Migrate finds nothing to do afterwards.
	MigrationSQL(w io.Writer, from, to int) error

	// LatestVersion is the version that this code needs.
	LatestVersion() int
}

// MigrationStatus tells where a database's schema stands.
type MigrationStatus struct {
	// Current is the version of the database; 0 when it has none of the library's
	// tables. It is more than Latest when newer code has migrated it.
	Current int
	// Latest is the version that this code needs.
	Latest int
	// Migrations are all that this code knows, in order.
	Migrations []MigrationInfo
}

// MigrationInfo describes one migration.
type MigrationInfo struct {
	Version int
	Name    string
	// Online is true when the migration runs outside of a transaction.
	Online bool
	// AppliedAt is zero when the migration has not been applied.
	AppliedAt time.Time
}
