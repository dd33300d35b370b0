package sqlite

import (
	"context"
	"database/sql"
	"time"

	"github.com/google/uuid"

	"github.com/outhook/webhook"
)

var (
	_ webhook.ClusterStore = (*Store)(nil)
	_ webhook.SplitStore   = (*Store)(nil)
)

// All of these ride on the primary key of their table.
const (
	upsertDispatcher query = `
		INSERT INTO {{prefix}}dispatcher (id, seen_at, serves) VALUES (?, ?, ?)
		ON CONFLICT (id) DO UPDATE SET seen_at = excluded.seen_at, serves = excluded.serves`

	// The table holds a row per process.
	deleteDead query = `DELETE FROM {{prefix}}dispatcher WHERE seen_at < ? AND id <> ?`

	selectAlive query = `SELECT id, serves FROM {{prefix}}dispatcher ORDER BY id`

	deleteDispatcher query = `DELETE FROM {{prefix}}dispatcher WHERE id = ?`

	upsertHealth query = `
		INSERT INTO {{prefix}}endpoint_health (endpoint_id, updated_at, state, shed_until, open_until) VALUES (?, ?, ?, ?, ?)
		ON CONFLICT (endpoint_id) DO UPDATE
		SET updated_at = excluded.updated_at, state = excluded.state, shed_until = excluded.shed_until,
			open_until = excluded.open_until, probe_until = 0
		WHERE updated_at <= excluded.updated_at`

	selectHealth query = `SELECT updated_at, state, shed_until, open_until FROM {{prefix}}endpoint_health WHERE endpoint_id = ?`

	// Rides on delivery_claim: leased deliveries are among the first of a lane.
	selectLeased query = `
		SELECT count(*) FROM (
			SELECT lease_until FROM {{prefix}}delivery
			WHERE endpoint_id = ? AND lane = ? ORDER BY next_attempt_at LIMIT 1000
		) WHERE lease_until > ?`

	upsertProbe query = `
		INSERT INTO {{prefix}}endpoint_health (endpoint_id, probe_until) VALUES (?, ?)
		ON CONFLICT (endpoint_id) DO UPDATE SET probe_until = excluded.probe_until
		WHERE probe_until <= ?`

	// Rides on endpoint_health_open, which holds those with an open circuit.
	selectOpened query = `SELECT endpoint_id FROM {{prefix}}endpoint_health WHERE open_until > 0 AND open_until > ?`

	upsertSplit query = `
		INSERT INTO {{prefix}}host_split (host, until, not_before) VALUES (?, ?, ?)
		ON CONFLICT (host) DO UPDATE SET until = excluded.until, not_before = excluded.not_before
		WHERE (not_before, until) <= (excluded.not_before, excluded.until)`

	// The table holds the few hosts that are hot, or were.
	selectSplits query = `
		SELECT host, until, not_before FROM {{prefix}}host_split
		WHERE host > '' AND max(until, not_before) > ? ORDER BY host`

	selectProbe query = `SELECT probe_until FROM {{prefix}}endpoint_health WHERE endpoint_id = ?`
)

// Heartbeat implements [webhook.ClusterStore].
func (s *Store) Heartbeat(ctx context.Context, p webhook.HeartbeatParams) ([]webhook.Member, error) {
	var alive []webhook.Member
	err := s.write(ctx, "sending a heartbeat", nil, func(ctx context.Context, c *sql.Conn) error {
		alive = nil
		if _, err := c.ExecContext(ctx, s.sql(upsertDispatcher), blob(p.Dispatcher), micros(p.Now), p.Serves); err != nil {
			return err
		}
		if _, err := c.ExecContext(ctx, s.sql(deleteDead), micros(p.DeadBefore), blob(p.Dispatcher)); err != nil {
			return err
		}
		rows, err := c.QueryContext(ctx, s.sql(selectAlive))
		return scanAll(rows, err, func(rows *sql.Rows) error {
			var m webhook.Member
			if err := rows.Scan(&m.ID, &m.Serves); err != nil {
				return err
			}
			alive = append(alive, m)
			return nil
		})
	})
	return alive, err
}

// Leave implements [webhook.ClusterStore].
func (s *Store) Leave(ctx context.Context, dispatcher uuid.UUID) error {
	return s.write(ctx, "signing a dispatcher off", nil, func(ctx context.Context, c *sql.Conn) error {
		_, err := c.ExecContext(ctx, s.sql(deleteDispatcher), blob(dispatcher))
		return err
	})
}

// SaveHealth implements [webhook.ClusterStore].
func (s *Store) SaveHealth(ctx context.Context, health []webhook.HealthRecord) error {
	if len(health) == 0 {
		return nil
	}
	return s.write(ctx, "saving endpoints' health", nil, func(ctx context.Context, c *sql.Conn) error {
		upsert, err := c.PrepareContext(ctx, s.sql(upsertHealth))
		if err != nil {
			return err
		}
		defer func() { _ = upsert.Close() }() // releases memory only
		for _, h := range health {
			if _, err := upsert.ExecContext(ctx, blob(h.EndpointID), micros(h.UpdatedAt), present(h.State), micros(h.ShedUntil), micros(h.OpenUntil)); err != nil {
				return err
			}
		}
		return nil
	})
}

// LoadHealth implements [webhook.ClusterStore].
func (s *Store) LoadHealth(ctx context.Context, p webhook.LoadHealthParams) ([]webhook.HealthRecord, error) {
	var loaded []webhook.HealthRecord
	err := s.read(ctx, "loading endpoints' health", func(ctx context.Context) error {
		conn, err := s.db.Conn(ctx)
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close() }() // back to the pool; it has no error of its own
		st, err := s.prepareAll(ctx, conn, selectHealth, selectLeased)
		if err != nil {
			return err
		}
		defer st.close()
		loaded = make([]webhook.HealthRecord, len(p.Endpoints))
		for i, id := range p.Endpoints {
			loaded[i].EndpointID = id
			if err := loadHealth(ctx, st, &loaded[i], micros(p.Now)); err != nil {
				return err
			}
		}
		return nil
	})
	return loaded, err
}

// loadHealth reads one endpoint's; st are selectHealth and selectLeased.
func loadHealth(ctx context.Context, st statements, h *webhook.HealthRecord, now int64) error {
	rows, err := st[0].QueryContext(ctx, blob(h.EndpointID))
	err = scanAll(rows, err, func(rows *sql.Rows) error {
		var updated, shed, open int64
		if err := rows.Scan(&updated, &h.State, &shed, &open); err != nil {
			return err
		}
		h.ShedUntil, h.OpenUntil = fromMicros(shed), fromMicros(open)
		h.UpdatedAt = fromMicros(updated)
		return nil
	})
	if err != nil {
		return err
	}
	for _, lane := range []webhook.Lane{webhook.LaneFirst, webhook.LaneRetry, webhook.LaneReplay} {
		var n int
		if err := st[1].QueryRowContext(ctx, blob(h.EndpointID), int(lane), now).Scan(&n); err != nil {
			return err
		}
		h.Leased += n
	}
	return nil
}

// TakeProbes implements [webhook.ClusterStore].
func (s *Store) TakeProbes(ctx context.Context, p webhook.TakeProbesParams) (map[uuid.UUID]time.Time, error) {
	if len(p.Endpoints) == 0 {
		return nil, nil
	}
	held := map[uuid.UUID]time.Time{}
	err := s.write(ctx, "taking probes", nil, func(ctx context.Context, c *sql.Conn) error {
		clear(held)
		st, err := s.prepareAll(ctx, c, upsertProbe, selectProbe)
		if err != nil {
			return err
		}
		defer st.close()
		for _, id := range p.Endpoints {
			taken, err := changed(st[0].ExecContext(ctx, blob(id), micros(p.Until), micros(p.Now)))
			if err != nil {
				return err
			}
			if taken {
				continue
			}
			var until int64
			if err := st[1].QueryRowContext(ctx, blob(id)).Scan(&until); err != nil {
				return err
			}
			held[id] = fromMicros(until)
		}
		return nil
	})
	return held, err
}

// ListOpened implements [webhook.ClusterStore].
func (s *Store) ListOpened(ctx context.Context, now time.Time) ([]uuid.UUID, error) {
	var opened []uuid.UUID
	err := s.read(ctx, "listing open circuits", func(ctx context.Context) error {
		opened = nil
		rows, err := s.db.QueryContext(ctx, s.sql(selectOpened), micros(now))
		return scanAll(rows, err, func(rows *sql.Rows) error {
			var id uuid.UUID
			if err := rows.Scan(&id); err != nil {
				return err
			}
			opened = append(opened, id)
			return nil
		})
	})
	return opened, err
}

// SaveSplit implements [webhook.SplitStore].
func (s *Store) SaveSplit(ctx context.Context, split webhook.HostSplit) error {
	return s.write(ctx, "saving how a host is split", nil, func(ctx context.Context, c *sql.Conn) error {
		_, err := c.ExecContext(ctx, s.sql(upsertSplit), split.Host, micros(split.Until), micros(split.NotBefore))
		return err
	})
}

// ListSplits implements [webhook.SplitStore].
func (s *Store) ListSplits(ctx context.Context, now time.Time) ([]webhook.HostSplit, error) {
	var splits []webhook.HostSplit
	err := s.read(ctx, "listing split hosts", func(ctx context.Context) error {
		splits = nil
		rows, err := s.db.QueryContext(ctx, s.sql(selectSplits), micros(now))
		return scanAll(rows, err, func(rows *sql.Rows) error {
			var split webhook.HostSplit
			var until, notBefore int64
			if err := rows.Scan(&split.Host, &until, &notBefore); err != nil {
				return err
			}
			split.Until, split.NotBefore = fromMicros(until), fromMicros(notBefore)
			splits = append(splits, split)
			return nil
		})
	})
	return splits, err
}
