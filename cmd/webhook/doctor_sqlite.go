package main

import (
	"context"
	"database/sql"
	"errors"
	"time"
)

const (
	// freeShare is from what share of free pages on a file is worth shrinking, if it is
	// larger than freeBytes.
	freeShare = 0.5
	freeBytes = 100 << 20
	// largeWAL is from what size on the write-ahead log was not emptied for long.
	largeWAL = 256 << 20
)

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
	d.ok("connections", "cannot be seen from here: the service's own are checked by its Migrate (busy timeout, immediate transactions)")
	d.sqliteSpace(path, pages*size, free*size)
}

func (d *doctor) sqliteSpace(path string, size, free int64) {
	const check = "bloat"
	wal := fileSize(path + "-wal")
	found := false
	if free > freeBytes && float64(free) > freeShare*float64(size) {
		found = true
		d.warn(check, "It is used again by itself. VACUUM gives it back, and stops all writers while it runs.", "%s of %s are free", bytesText(free), bytesText(size))
	}
	if wal > largeWAL {
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
