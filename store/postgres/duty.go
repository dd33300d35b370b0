package postgres

import (
	"context"
	"fmt"

	"github.com/outhook/webhook"
)

// A row that another process changes meanwhile is waited for and looked at as it is
// then. Rides on duty_pkey.
const takeDutySQL = `
INSERT INTO {{schema}}.duty AS d (name, holder, until) VALUES ($1::text, $2::uuid, $4::timestamptz)
ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, until = excluded.until
WHERE d.until <= $3::timestamptz OR d.holder = excluded.holder`

// TakeDuty implements [webhook.SystemStore].
func (s *core) TakeDuty(ctx context.Context, p webhook.DutyParams) (held bool, err error) {
	n, err := s.db.exec(ctx, &s.sql.takeDuty, p.Name, s.db.id(p.Holder), micros(p.Now), micros(p.Until))
	if err != nil {
		return false, fmt.Errorf("postgres: taking the duty %s: %w", p.Name, err)
	}
	return n > 0, nil
}
