package sqlite

import (
	"fmt"
	"strings"

	"github.com/outhook/webhook"
)

// orUnmigrated says what most likely lies behind a missing table, so that whoever
// forgot to migrate is not left with a name that they have never seen. Drivers have
// their own types for SQLite's errors; the words are SQLite's.
func (s *Store) orUnmigrated(err error) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	if strings.Contains(text, "no such table: "+s.prefix) ||
		strings.Contains(text, "no such column: ") ||
		strings.Contains(text, "table "+s.prefix) && strings.Contains(text, "has no column named ") {
		return fmt.Errorf("%w: %w", webhook.ErrSchemaOutdated, err)
	}
	return err
}
