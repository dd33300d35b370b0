package main

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/outhook/webhook/store/sqlite"
)

// freeShare is from what share of free pages on a file is worth shrinking.
const freeShare = 0.5

func (d *doctor) sqliteFile(ctx context.Context) {
	const check = "file"
	var version, mode, path string
	var pages, free, size int64
	err := d.db.lite.QueryRowContext(ctx, `SELECT sqlite_version(), (SELECT file FROM pragma_database_list WHERE name = 'main')`).Scan(&version, &path)
	for query, dst := range map[string]any{
		"PRAGMA journal_mode": &mode, "PRAGMA page_count": &pages, "PRAGMA freelist_count": &free, "PRAGMA page_size": &size,
	} {
		if err == nil {
			err = d.db.lite.QueryRowContext(ctx, query).Scan(dst)
		}
	}
	if err != nil {
		d.failed(check, err)
		return
	}
	if mode == "wal" {
		d.ok(check, "SQLite %s, %s, write-ahead logging", version, bytesText(pages*size))
	} else {
		d.problem(check, "Run 'webhook migrate up', which turns write-ahead logging on. It stays off on a network file system: use a local disk.",
			"the journal mode is %s: readers and writers are in each other's way", mode)
	}
	d.sqliteService(ctx)
	d.sqlitePlace(path)
	d.sqliteSpace(path, pages*size, free*size)
}

// sqliteService opens the file as the service does.
func (d *doctor) sqliteService(ctx context.Context) {
	const check = "connections"
	if d.service == "" {
		d.ok(check, "the service's own cannot be seen from here: its Migrate checks them, and --service-dsn does")
		return
	}
	db, err := sql.Open("sqlite", d.service)
	if err != nil {
		d.failed(check, err)
		return
	}
	defer db.Close()
	var refused *sqlite.ConnectionError
	switch err := sqlite.New(db).Check(ctx); {
	case errors.As(err, &refused):
		d.problem(check, "Open the file with "+refused.Modernc+" (modernc.org/sqlite), or "+refused.Mattn+" (mattn/go-sqlite3).", "the service's %s", refused.Problem)
	case err != nil:
		d.failed(check, err)
	default:
		d.ok(check, "the service's wait for one another")
	}
}

// sqlitePlace looks for a network file system, on which locks do not do what they say.
func (d *doctor) sqlitePlace(path string) {
	const check = "place"
	name, remote := remoteFileSystem(path)
	if remote {
		d.problem(check, "Move the file to a local disk: SQLite's locks and its shared memory do not work over a network, and the file will be damaged.",
			"%s is on a network file system (%s)", path, name)
		return
	}
	d.ok(check, "not on a network file system that is known here")
}

func (d *doctor) sqliteSpace(path string, size, free int64) {
	const check = "bloat"
	wal := fileSize(path + "-wal")
	found := false
	if free > d.limits.freeBytes && float64(free) > freeShare*float64(size) {
		found = true
		d.warn(check, "It is used again by itself. VACUUM gives it back, and stops all writers while it runs.", "%s of %s are free", bytesText(free), bytesText(size))
	}
	if wal > d.limits.walBytes {
		found = true
		d.warn(check, "A reader that never ends keeps it from being emptied: look for a transaction or rows that nobody closes.",
			"the write-ahead log has %s", bytesText(wal))
	}
	if !found {
		d.ok(check, "%s of %s are free, and the write-ahead log has %s", bytesText(free), bytesText(size), bytesText(wal))
	}
}

func (d *doctor) sqliteIndexes(ctx context.Context) (map[string]bool, error) {
	rows, err := d.db.lite.QueryContext(ctx, `SELECT name FROM sqlite_master WHERE type = 'index'`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	valid := make(map[string]bool)
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return nil, err
		}
		valid[name] = true
	}
	return valid, rows.Err()
}

// sqliteTime reads one time; zero when there is no row.
func (d *doctor) sqliteTime(ctx context.Context, query string) (time.Time, error) {
	var micros int64
	err := d.db.lite.QueryRowContext(ctx, query).Scan(&micros)
	if errors.Is(err, sql.ErrNoRows) {
		return time.Time{}, nil
	}
	return time.UnixMicro(micros), err
}
