package sqlite

import (
	"database/sql"
	"errors"
	"strings"
	"time"

	"github.com/google/uuid"
)

// micros is how a time is stored: microseconds since 1970, 0 for none.
func micros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

// microsOr is micros with a default for none.
func microsOr(t, instead time.Time) int64 {
	if t.IsZero() {
		return micros(instead)
	}
	return micros(t)
}

func fromMicros(v int64) time.Time {
	if v == 0 {
		return time.Time{}
	}
	return time.UnixMicro(v).UTC()
}

// blob is how an id is stored: the driver would write a uuid.UUID as text.
func blob(id uuid.UUID) []byte { return id[:] }

// present makes a column that may not be null hold an empty value for a nil one.
func present(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

// orNull makes a column null for an empty value.
func orNull(b []byte) any {
	if len(b) == 0 {
		return nil
	}
	return b
}

// text is how a string is stored that may come from a receiver: reads give UTF-8
// whatever it sent, and SQLite's own functions would stop at a NUL.
func text(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}

// now is the time of the machine, which is also the database's.
func now() time.Time { return time.Now().UTC().Truncate(time.Microsecond) }

// placeholders returns n groups of k parameters: "(?,?),(?,?)".
func placeholders(n, k int) string {
	return repeat("("+strings.Repeat("?,", k-1)+"?)", n)
}

// repeat returns n groups with commas between them.
func repeat(group string, n int) string {
	return strings.Repeat(group+",", n-1) + group
}

// maxParameters is how many parameters one statement may have in any build of
// SQLite (SQLITE_MAX_VARIABLE_NUMBER was 999 before 3.32).
const maxParameters = 999

// scanner is a row, of one or of many.
type scanner interface {
	Scan(dest ...any) error
}

// scanAll calls scan for every row, and closes rows.
func scanAll(rows *sql.Rows, err error, scan func(*sql.Rows) error) error {
	if err != nil {
		return err
	}
	for rows.Next() {
		if err := scan(rows); err != nil {
			return errors.Join(err, rows.Close())
		}
	}
	return errors.Join(rows.Err(), rows.Close())
}

// changed reports whether a statement changed a row.
func changed(result sql.Result, err error) (bool, error) {
	if err != nil {
		return false, err
	}
	n, err := result.RowsAffected()
	return n > 0, err
}
