package postgres

import (
	"fmt"

	"github.com/outhook/webhook"
)

// SQLSTATEs of a statement that names what no migration has made.
const (
	undefinedTable  = "42P01"
	undefinedColumn = "42703"
	invalidSchema   = "3F000"
)

// orUnmigrated says what most likely lies behind a missing table, so that whoever
// forgot to migrate is not left with a name that they have never seen. The driver's
// error stays in it.
func orUnmigrated(err error) error {
	switch sqlState(err) {
	case undefinedTable, undefinedColumn, invalidSchema:
		return fmt.Errorf("%w: %w", webhook.ErrSchemaOutdated, err)
	}
	return err
}
