package postgres

import (
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// pgxQuerier is implemented by pools and transactions.
type pgxQuerier interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// pgxConn runs statements through pgx.
type pgxConn struct {
	querier pgxQuerier
	// replanMode is how statements run that must be planned anew; 0 leaves the
	// connection's own mode, where that plans anew already.
	replanMode pgx.QueryExecMode
}

func (c pgxConn) arguments(s *statement, args []any) []any {
	if !s.replan || c.replanMode == 0 {
		return args
	}
	return append([]any{c.replanMode}, args...)
}

func (c pgxConn) exec(ctx context.Context, s *statement, args ...any) (int64, error) {
	tag, err := c.querier.Exec(ctx, s.text, c.arguments(s, args)...)
	return tag.RowsAffected(), err
}

func (c pgxConn) query(ctx context.Context, s *statement, args ...any) (rows, error) {
	r, err := c.querier.Query(ctx, s.text, c.arguments(s, args)...)
	return pgxRows{r}, err
}

// pgxRows reads ids as the bytes that they are. pgx would hand them to a
// [uuid.UUID] as text, since that is a [sql.Scanner].
type pgxRows struct{ pgx.Rows }

func (r pgxRows) Scan(dest ...any) error {
	for i, d := range dest {
		if id, ok := d.(*uuid.UUID); ok {
			dest[i] = (*[16]byte)(id)
		}
	}
	return r.Rows.Scan(dest...)
}

// pgxDatabase is a pgx pool.
type pgxDatabase struct {
	pgxConn
	encoder
	pool *pgxpool.Pool
}

func newPgxDatabase(pool *pgxpool.Pool) pgxDatabase {
	config := pool.Config().ConnConfig
	return pgxDatabase{
		pgxConn: pgxConn{querier: pool, replanMode: replanMode(config)},
		encoder: encoderFor(config),
		pool:    pool,
	}
}

// encoderFor picks how arrays are sent: in the modes that do not ask the server
// for the types of parameters, pgx cannot know that an array is one of ids.
func encoderFor(config *pgx.ConnConfig) encoder {
	switch config.DefaultQueryExecMode {
	case pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol:
		return sqlEncoder{}
	default:
		return pgxEncoder{}
	}
}

// replanMode picks the mode for statements that must not keep a cached plan.
// Only a named prepared statement keeps one; a cached description spares the
// round trip for it all the same.
func replanMode(config *pgx.ConnConfig) pgx.QueryExecMode {
	if config.DefaultQueryExecMode != pgx.QueryExecModeCacheStatement {
		return 0
	}
	if config.DescriptionCacheCapacity <= 0 {
		return pgx.QueryExecModeDescribeExec
	}
	return pgx.QueryExecModeCacheDescribe
}

func (d pgxDatabase) atomically(ctx context.Context, fn func(conn) error) error {
	tx, err := d.pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
	if err != nil {
		return err
	}
	defer func() {
		// Also after a panic of fn, and when ctx has ended: else the server
		// would notice some time after we have returned, and keep the rows
		// locked until then.
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTimeout)
		defer cancel()
		_ = tx.Rollback(ending) // does nothing after Commit; the first error says more
	}()
	if err := fn(pgxConn{querier: tx, replanMode: d.replanMode}); err != nil {
		return err
	}
	return tx.Commit(ctx)
}
