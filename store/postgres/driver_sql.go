package postgres

import (
	"context"
	"database/sql"
	"encoding/hex"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
)

// sqlQuerier is implemented by *sql.DB and *sql.Tx.
type sqlQuerier interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// sqlConn runs statements through database/sql.
type sqlConn struct{ querier sqlQuerier }

func (c sqlConn) exec(ctx context.Context, s *statement, args ...any) (int64, error) {
	result, err := c.querier.ExecContext(ctx, s.text, args...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

func (c sqlConn) query(ctx context.Context, s *statement, args ...any) (rows, error) {
	r, err := c.querier.QueryContext(ctx, s.text, args...)
	if err != nil {
		return nil, err
	}
	return sqlRows{r}, nil
}

// sqlRows drops the error of Close, which Err has reported by then.
type sqlRows struct{ *sql.Rows }

func (r sqlRows) Close() { _ = r.Rows.Close() }

// sqlDatabase is a pool of database/sql.
type sqlDatabase struct {
	sqlConn
	sqlEncoder
	db *sql.DB
}

func newSQLDatabase(db *sql.DB) sqlDatabase {
	return sqlDatabase{sqlConn: sqlConn{querier: db}, db: db}
}

// forceCustomPlan keeps a driver that prepares and caches statements from
// caching plans with them. It ends with the transaction.
const forceCustomPlan = `SET LOCAL plan_cache_mode = force_custom_plan`

func (d sqlDatabase) atomically(ctx context.Context, fn func(conn) error) error {
	tx, end, err := d.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	if err := fn(sqlConn{querier: tx}); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return tx.Commit()
}

// begin starts a transaction that the end of ctx does not roll back: database/sql
// would do so some time after we have returned, and keep the rows locked until
// then. end rolls back what is not committed, and gives the connection back.
func (d sqlDatabase) begin(ctx context.Context) (tx *sql.Tx, end func(), err error) {
	c, err := d.db.Conn(ctx)
	if err != nil {
		return nil, nil, err
	}
	tx, err = c.BeginTx(context.WithoutCancel(ctx), &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		_ = c.Close()
		return nil, nil, err
	}
	end = func() {
		_ = tx.Rollback() // does nothing after Commit
		_ = c.Close()     // back into the pool
	}
	if _, err := tx.ExecContext(ctx, forceCustomPlan); err != nil {
		end()
		return nil, nil, err
	}
	return tx, end, nil
}

// query of a statement that must be planned anew needs a transaction of its own,
// which ends when the rows are closed.
func (d sqlDatabase) query(ctx context.Context, s *statement, args ...any) (rows, error) {
	if !s.replan {
		return d.sqlConn.query(ctx, s, args...)
	}
	tx, end, err := d.begin(ctx)
	if err != nil {
		return nil, err
	}
	r, err := tx.QueryContext(ctx, s.text, args...)
	if err != nil {
		end()
		return nil, err
	}
	return &txRows{Rows: r, tx: tx, end: end}, nil
}

// exec of a statement that must be planned anew, likewise.
func (d sqlDatabase) exec(ctx context.Context, s *statement, args ...any) (affected int64, err error) {
	if !s.replan {
		return d.sqlConn.exec(ctx, s, args...)
	}
	err = d.atomically(ctx, func(tx conn) error {
		affected, err = tx.exec(ctx, s, args...)
		return err
	})
	return affected, err
}

// txRows are rows that commit their transaction when they have been read to the
// end, and roll it back when they are closed before.
type txRows struct {
	*sql.Rows
	tx        *sql.Tx
	end       func()
	committed bool
	err       error
}

func (r *txRows) Next() bool {
	if r.Rows.Next() {
		return true
	}
	if r.Rows.Err() == nil && !r.committed {
		r.committed = true
		r.err = r.tx.Commit()
	}
	return false
}

func (r *txRows) Err() error {
	if err := r.Rows.Err(); err != nil {
		return err
	}
	return r.err
}

func (r *txRows) Close() {
	_ = r.Rows.Close()
	r.end()
}

// sqlEncoder writes arrays as text literals, which every driver can send and the
// casts in the statements turn into arrays again.
type sqlEncoder struct{}

func (sqlEncoder) id(u uuid.UUID) any { return u }

func literal[T any](v []T, size int, add func(b []byte, e T) []byte) string {
	b := make([]byte, 0, 2+size*len(v))
	b = append(b, '{')
	for i, e := range v {
		if i > 0 {
			b = append(b, ',')
		}
		b = add(b, e)
	}
	return string(append(b, '}'))
}

func (sqlEncoder) uuids(v []uuid.UUID) any {
	return literal(v, 37, func(b []byte, u uuid.UUID) []byte {
		text, _ := u.MarshalText() // never fails
		return append(b, text...)
	})
}

var quoteElement = strings.NewReplacer(`\`, `\\`, `"`, `\"`)

func (sqlEncoder) texts(v []string) any {
	return literal(v, 16, func(b []byte, s string) []byte {
		b = append(b, '"')
		b = append(b, quoteElement.Replace(s)...)
		return append(b, '"')
	})
}

func (sqlEncoder) bytes(v [][]byte) any {
	size := 8
	if len(v) > 0 {
		size += 2 * len(v[0])
	}
	return literal(v, size, func(b []byte, e []byte) []byte {
		b = append(b, `"\\x`...)
		b = hex.AppendEncode(b, e)
		return append(b, '"')
	})
}

func (sqlEncoder) int64s(v []int64) any {
	return literal(v, 8, func(b []byte, i int64) []byte { return strconv.AppendInt(b, i, 10) })
}

func (sqlEncoder) int16s(v []int16) any {
	return literal(v, 3, func(b []byte, i int16) []byte { return strconv.AppendInt(b, int64(i), 10) })
}

func (sqlEncoder) bools(v []bool) any {
	return literal(v, 6, strconv.AppendBool)
}

func (sqlEncoder) times(v []time.Time) any {
	return literal(v, 30, func(b []byte, t time.Time) []byte {
		b = append(b, '"')
		b = micros(t).AppendFormat(b, "2006-01-02 15:04:05.999999Z07:00")
		return append(b, '"')
	})
}
