// Package postgres keeps the library's state in PostgreSQL 13 or newer: [Store]
// through pgx, [SQLStore] through database/sql with any driver.
//
//	store := postgres.New(pool)
//	if err := store.Migrate(ctx); err != nil { … }
//
// Everything lives in a schema of its own, "webhook" unless [Config] says
// otherwise, and every name is written with it: the search_path is neither read
// nor set. The package keeps nothing in the session (no SET, no session locks,
// no statement prepared by name other than by the driver), so that it works
// through a pooler in transaction mode; only [Store.Listen] needs a connection
// that is its own.
package postgres

import (
	"context"
	"database/sql"
	"fmt"
	"regexp"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outhook/webhook"
	"github.com/outhook/webhook/internal/timeid"
)

var (
	_ webhook.Store[pgx.Tx]  = (*Store)(nil)
	_ webhook.Store[*sql.Tx] = (*SQLStore)(nil)
	_ webhook.Notifier       = (*Store)(nil)
	_ webhook.Notifier       = (*SQLStore)(nil)
	_ webhook.Migrator       = (*Store)(nil)
	_ webhook.Migrator       = (*SQLStore)(nil)

	_ webhook.AttemptFollower = (*Store)(nil)
	_ webhook.AttemptFollower = (*SQLStore)(nil)
)

// DefaultSchema is the schema used when [Config.Schema] is empty.
const DefaultSchema = "webhook"

// maxSchemaLength leaves room in PostgreSQL's 63 bytes for the name of the
// notification channel.
const maxSchemaLength = 48

// Config adjusts a store. The zero value is what [New] uses.
type Config struct {
	// ListenConn is the connection that [Store.Listen] opens. Set it when the
	// pool goes through a pooler in transaction mode, which loses
	// notifications, to a direct connection to the same database. Nil means
	// one of the pool's for a [Store], and no listening for an [SQLStore].
	ListenConn *pgx.ConnConfig

	// Schema is the schema that holds the library's tables: a letter or
	// underscore, then letters, digits or underscores, all lower case, at most
	// 48 bytes. Several schemas in one database do not see one another. Empty
	// means [DefaultSchema].
	Schema string
}

var schemaName = regexp.MustCompile(`^[a-z_][a-z0-9_]*$`)

func (c Config) withDefaults() (Config, error) {
	if c.Schema == "" {
		c.Schema = DefaultSchema
	}
	if len(c.Schema) > maxSchemaLength || !schemaName.MatchString(c.Schema) {
		return Config{}, &webhook.InvalidError{
			Field:   "Config.Schema",
			Problem: fmt.Sprintf("is %q, want at most %d lower-case letters, digits and underscores, not beginning with a digit", c.Schema, maxSchemaLength),
		}
	}
	return c, nil
}

// Store is a [webhook.Store] on a pgx pool. The host's transactions are pgx.Tx.
// It is safe for concurrent use and holds no connection while nobody calls it,
// except for [Store.Listen].
type Store struct {
	core
	pool *pgxpool.Pool
}

// New returns a store on pool, which stays the caller's to close, in schema
// "webhook". It does not connect; call [Store.Migrate] before the first use of a
// database. It panics if pool is nil.
func New(pool *pgxpool.Pool) *Store {
	s, err := NewWithConfig(pool, Config{})
	if err != nil {
		panic(err)
	}
	return s
}

// NewWithConfig is New with a configuration. What it refuses, a nil pool too, it
// reports with a [webhook.InvalidError].
func NewWithConfig(pool *pgxpool.Pool, config Config) (*Store, error) {
	if pool == nil {
		return nil, &webhook.InvalidError{Field: "pool", Problem: "is nil"}
	}
	config, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	core, err := newCore(newPgxDatabase(pool), config)
	if err != nil {
		return nil, err
	}
	return &Store{core: core, pool: pool}, nil
}

// InsertEvents implements [webhook.OutboxStore].
func (s *Store) InsertEvents(ctx context.Context, tx pgx.Tx, events []webhook.EventRecord) ([]webhook.EnqueueResult, error) {
	if tx == nil {
		return nil, errNoTx()
	}
	var e encoder = s.db
	if c := tx.Conn(); len(events) > 1 && c != nil {
		// The transaction may come from another pool than the store's. Looking
		// costs a copy of the configuration, which one event need not pay.
		e = encoderFor(c.Config())
	}
	return s.insertEvents(ctx, pgxConn{querier: tx}, e, events)
}

// SQLStore is a [webhook.Store] on a pool of database/sql, with whatever
// PostgreSQL driver that uses. The host's transactions are *sql.Tx, which is also
// what lies under those of GORM, sqlx, ent, bun and sqlc. It is safe for
// concurrent use.
type SQLStore struct {
	core
}

// NewSQL returns a store on db, which stays the caller's to close, in schema
// "webhook". It does not connect; call [SQLStore.Migrate] before the first use of a
// database. It panics if db is nil.
func NewSQL(db *sql.DB) *SQLStore {
	s, err := NewSQLWithConfig(db, Config{})
	if err != nil {
		panic(err)
	}
	return s
}

// NewSQLWithConfig is NewSQL with a configuration. What it refuses, a nil db too, it
// reports with a [webhook.InvalidError].
func NewSQLWithConfig(db *sql.DB, config Config) (*SQLStore, error) {
	if db == nil {
		return nil, &webhook.InvalidError{Field: "db", Problem: "is nil"}
	}
	config, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	core, err := newCore(newSQLDatabase(db), config)
	if err != nil {
		return nil, err
	}
	return &SQLStore{core: core}, nil
}

// InsertEvents implements [webhook.OutboxStore].
func (s *SQLStore) InsertEvents(ctx context.Context, tx *sql.Tx, events []webhook.EventRecord) ([]webhook.EnqueueResult, error) {
	if tx == nil {
		return nil, errNoTx()
	}
	return s.insertEvents(ctx, sqlConn{querier: tx}, s.db, events)
}

func errNoTx() error { return &webhook.InvalidError{Field: "tx", Problem: "is nil"} }

// core is the store but for the host's transaction type.
type core struct {
	db          database
	config      Config
	migrations  migrations
	sql         statements
	partitions  *partitionKeeper
	fanOutRate  *fanOutRate
	outboxFloor *outboxFloor
	ids         *timeid.Generator // of deliveries
}

func newCore(db database, config Config) (core, error) {
	names := map[string]string{"schema": quote(config.Schema)}
	migrations, err := newMigrations(names)
	if err != nil {
		return core{}, err
	}
	sql, err := newStatements(names)
	if err != nil {
		return core{}, err
	}
	return core{
		db:          db,
		config:      config,
		migrations:  migrations,
		sql:         sql,
		partitions:  newPartitionKeeper(),
		fanOutRate:  new(fanOutRate),
		outboxFloor: new(outboxFloor),
		ids:         new(timeid.Generator),
	}, nil
}

// quote makes an identifier of a validated name, which may be a reserved word.
func quote(name string) string { return `"` + name + `"` }
