package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	oldestPostgres = 13_00_00

	// rowBytes is far more than a row of the queue's tables takes, and entryBytes than its
	// entries in all indexes do.
	rowBytes   = 8 << 10
	entryBytes = 8 << 10
)

func (d *doctor) postgresServer(ctx context.Context) {
	const check = "server"
	var number int
	var version, autovacuum, fsync string
	err := d.db.pg.QueryRow(ctx, `
		SELECT current_setting('server_version_num')::integer, current_setting('server_version'),
		       current_setting('autovacuum'), current_setting('fsync')`).Scan(&number, &version, &autovacuum, &fsync)
	switch {
	case err != nil:
		d.failed(check, err)
		return
	case number < oldestPostgres:
		d.problem(check, "Use PostgreSQL 13 or newer.", "PostgreSQL %s", version)
	default:
		d.ok(check, "PostgreSQL %s", version)
	}
	if autovacuum != "on" {
		d.problem(check, "Turn autovacuum on: the queue is rewritten all the time.", "autovacuum is %s", autovacuum)
	}
	if fsync != "on" {
		d.warn(check, "Turn fsync on, unless this is a test.", "fsync is %s: a crash of the machine loses or damages the database", fsync)
	}
}

func (d *doctor) postgresIndexes(ctx context.Context) (map[string]bool, error) {
	rows, err := d.db.pg.Query(ctx, `
		SELECT c.relname, i.indisvalid AND i.indisready
		FROM pg_catalog.pg_index i
		JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid
		JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
		WHERE n.nspname = $1`, d.db.schema)
	if err != nil {
		return nil, err
	}
	valid := make(map[string]bool)
	var name string
	var ok bool
	_, err = pgx.ForEachRow(rows, []any{&name, &ok}, func() error {
		valid[name] = ok
		return nil
	})
	return valid, err
}

// postgresTables looks at the tables that are rewritten all the time.
func (d *doctor) postgresTables(ctx context.Context) {
	const check = "bloat"
	rows, err := d.db.pg.Query(ctx, `
		SELECT t.relname, t.n_live_tup, t.n_dead_tup, greatest(t.last_autovacuum, t.last_vacuum),
		       pg_relation_size(t.relid), pg_indexes_size(t.relid), coalesce('autovacuum_enabled=false' = ANY (c.reloptions), false)
		FROM pg_catalog.pg_stat_user_tables t
		JOIN pg_catalog.pg_class c ON c.oid = t.relid
		WHERE t.schemaname = $1 AND t.relname IN ('delivery', 'outbox', 'event', 'endpoint_health', 'endpoint_vitals', 'order_hold')
		ORDER BY t.relname`, d.db.schema)
	if err != nil {
		d.failed(check, err)
		return
	}
	before := len(d.findings)
	var t tableSize
	_, err = pgx.ForEachRow(rows, []any{&t.name, &t.live, &t.dead, &t.vacuumed, &t.size, &t.indexes, &t.untended}, func() error {
		d.postgresTable(check, &t)
		return nil
	})
	switch {
	case err != nil:
		d.failed(check, err)
	case len(d.findings) == before:
		d.ok(check, "no table has more than %d dead rows and fewer living ones, or is far larger than its rows", d.limits.deadRows)
	}
}

// tableSize is how full a table is. Numbers of rows are the statistics' estimates.
type tableSize struct {
	name       string
	live, dead int64
	vacuumed   *time.Time
	size       int64
	indexes    int64
	untended   bool
}

func (d *doctor) postgresTable(check string, t *tableSize) {
	last := "never"
	if t.vacuumed != nil {
		last = when(*t.vacuumed) + " UTC"
	}
	full := pgx.Identifier{d.db.schema, t.name}.Sanitize()
	if t.untended {
		d.problem(check, "ALTER TABLE "+full+" RESET (autovacuum_enabled).", "table %s is left out of autovacuum", t.name)
	}
	if t.dead >= d.limits.deadRows && t.dead >= t.live {
		d.warn(check, "Look for what holds the horizon (below), then VACUUM "+full+".",
			"table %s has %d dead rows and %d living ones in %s, and was vacuumed %s", t.name, t.dead, t.live, bytesText(t.size), last)
		return
	}
	if t.name != "event" && t.size > d.limits.tableBytes && t.size/(t.live+1) > rowBytes { // an event holds its payload
		d.warn(check, "The space is used again, and claims read through it until then. Give it back by pg_repack, or in a quiet hour by VACUUM FULL "+full+".",
			"table %s takes %s for %d rows, and was vacuumed %s", t.name, bytesText(t.size), t.live, last)
	}
	if t.indexes > d.limits.indexBytes && t.indexes/(t.live+1) > entryBytes {
		d.warn(check, "REINDEX TABLE CONCURRENTLY "+full+".", "the indexes of table %s take %s for %d rows", t.name, bytesText(t.indexes), t.live)
	}
}

// postgresHorizon looks for what keeps dead rows from being removed.
func (d *doctor) postgresHorizon(ctx context.Context) {
	const check = "horizon"
	rows, err := d.db.pg.Query(ctx, `
		SELECT 'transaction of process ' || pid || ' (' || coalesce(nullif(application_name, ''), 'no name') || ', ' || coalesce(state, '?') || ')',
		       extract(epoch FROM now() - xact_start)::bigint
		FROM pg_catalog.pg_stat_activity
		WHERE backend_xmin IS NOT NULL AND datname = current_database() AND xact_start < now() - make_interval(secs => $1)
		UNION ALL
		SELECT 'prepared transaction ' || gid, extract(epoch FROM now() - prepared)::bigint
		FROM pg_catalog.pg_prepared_xacts
		WHERE database = current_database() AND prepared < now() - make_interval(secs => $1)
		UNION ALL
		SELECT 'replication slot ' || slot_name || ', which nobody reads', 0
		FROM pg_catalog.pg_replication_slots
		WHERE NOT active AND (xmin IS NOT NULL OR catalog_xmin IS NOT NULL)
		ORDER BY 2 DESC LIMIT 10`, d.limits.transaction.Seconds())
	if err != nil {
		d.failed(check, err)
		return
	}
	found := false
	var what string
	var seconds int64
	_, err = pgx.ForEachRow(rows, []any{&what, &seconds}, func() error {
		found = true
		d.warn(check, "End it if it is forgotten. While it lasts, no row that was deleted since can be removed, and claims slow down.",
			"%s, for %s", what, time.Duration(seconds)*time.Second)
		return nil
	})
	switch {
	case err != nil:
		d.failed(check, err)
	case !found:
		d.ok(check, "no transaction is older than %s", d.limits.transaction)
	}
}

func (d *doctor) postgresPartitions(ctx context.Context) {
	const check = "partitions"
	before := len(d.findings)
	for _, family := range []string{"attempt", "delivery_log", "delivery_dead"} {
		var stray, tomorrow bool
		err := d.db.pg.QueryRow(ctx, fmt.Sprintf(`
			SELECT EXISTS (SELECT FROM %s), to_regclass($1 || to_char(now() AT TIME ZONE 'UTC' + interval '1 day', 'YYYYMMDD')) IS NOT NULL`,
			d.db.table(family+"_default")), fmt.Sprintf("%s.%s_", pgx.Identifier{d.db.schema}.Sanitize(), family)).Scan(&stray, &tomorrow)
		switch {
		case err != nil:
			d.failed(check, err)
			return
		case stray:
			d.warn(check, "Nothing is lost, but removing them takes longer. Run a dispatcher at least once a week.",
				"table %s_default holds rows: the partition of a day was missing", family)
		case !tomorrow:
			d.warn(check, "A running dispatcher makes them a week ahead; 'webhook migrate up' does, too.", "table %s has none for tomorrow", family)
		}
	}
	if len(d.findings) == before {
		d.ok(check, "those of the next day are there, and the default ones are empty")
	}
}

// dispatchers counts those that were alive half a minute ago.
func (d *doctor) dispatchers(ctx context.Context) (n int, err error) {
	if d.db.pg != nil {
		err = d.db.pg.QueryRow(ctx, `SELECT count(*) FROM `+d.db.table("dispatcher")+` WHERE seen_at > now() - interval '30 s'`).Scan(&n)
		return n, err
	}
	err = d.db.lite.QueryRowContext(ctx, `SELECT count(*) FROM `+d.db.table("dispatcher")+` WHERE seen_at > ?`,
		time.Now().Add(-30*time.Second).UnixMicro()).Scan(&n)
	return n, err
}

// oldestEvent is when the event was created that waits longest for fan-out; zero when
// none does.
func (d *doctor) oldestEvent(ctx context.Context) (time.Time, error) {
	query := `SELECT e.created_at FROM ` + d.db.table("outbox") + ` o JOIN ` + d.db.table("event") + ` e `
	if d.db.pg == nil {
		return d.sqliteTime(ctx, query+`ON e.seq = o.event_seq ORDER BY o.position LIMIT 1`)
	}
	query += `ON e.id = o.event_id ORDER BY o.position LIMIT 1`
	var at time.Time
	err := d.db.pg.QueryRow(ctx, query).Scan(&at)
	if errors.Is(err, pgx.ErrNoRows) {
		return time.Time{}, nil
	}
	return at, err
}

func bytesText(n int64) string {
	const unit = 1024
	switch {
	case n >= unit*unit*unit:
		return fmt.Sprintf("%.1f GiB", float64(n)/(unit*unit*unit))
	case n >= unit*unit:
		return fmt.Sprintf("%.0f MiB", float64(n)/(unit*unit))
	default:
		return fmt.Sprintf("%d KiB", n/unit)
	}
}
