package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "modernc.org/sqlite"

	"github.com/outhook/webhook"
	"github.com/outhook/webhook/store/postgres"
	"github.com/outhook/webhook/store/sqlite"
)

// migratedStore is what both stores are.
type migratedStore interface {
	webhook.Backend
	webhook.Migrator
	webhook.AttemptFollower
}

// hooks is the part of [webhook.Hooks] that does not depend on the type of transactions.
type hooks interface {
	Endpoints() *webhook.Endpoints
	Deliveries() *webhook.Deliveries
	Replays() *webhook.Replays
	Health() *webhook.Health
	NewDispatcher(cfg webhook.DispatcherConfig) (*webhook.Dispatcher, error)
	Wake()
	Close()
}

// database is an open database, of one kind or the other.
type database struct {
	store migratedStore
	hooks hooks
	pg    *pgxpool.Pool // nil on SQLite
	lite  *sql.DB       // nil on PostgreSQL
	// schema is PostgreSQL's.
	schema string
	// enqueue commits an event in a transaction of its own.
	enqueue func(ctx context.Context, e webhook.Event) (uuid.UUID, error)
	// table names one of the library's tables in SQL.
	table func(name string) string
	close func()
}

const (
	kindPostgres = "postgresql"
	kindSQLite   = "sqlite"
)

func (d *database) kind() string {
	if d.pg != nil {
		return kindPostgres
	}
	return kindSQLite
}

// options of a database that a command opens.
type openOptions struct {
	// create makes an SQLite file that does not exist.
	create bool
	// prepare keeps prepared statements, which is faster and does not work through a
	// pooler in transaction mode.
	prepare bool
	// name, schema and prefix, where they are set, replace those of the command line.
	name, schema, prefix string
	config               webhook.Config
}

func (a *app) databaseName() (string, error) {
	for _, name := range []string{a.database, a.getenv("WEBHOOK_DATABASE"), a.getenv("DATABASE_URL")} {
		if name != "" {
			return name, nil
		}
	}
	return "", usagef("which database? Give --database, or set WEBHOOK_DATABASE: a postgres:// URL or the path of an SQLite file")
}

// with opens the database, checks its schema, calls do and closes it.
func (a *app) with(ctx context.Context, do func(context.Context, *database) error) error {
	return a.withConfig(ctx, webhook.Config{}, do)
}

func (a *app) withConfig(ctx context.Context, cfg webhook.Config, do func(context.Context, *database) error) error {
	db, err := a.open(ctx, openOptions{config: cfg})
	if err != nil {
		return err
	}
	defer db.close()
	if err := db.store.CheckSchema(ctx); err != nil {
		return fmt.Errorf("%w (see 'webhook migrate status')", err)
	}
	return do(ctx, db)
}

func (a *app) open(ctx context.Context, o openOptions) (*database, error) {
	name, err := o.name, error(nil)
	if name == "" {
		name, err = a.databaseName()
	}
	if err != nil {
		return nil, err
	}
	if o.config.Secrets == nil {
		if o.config.Secrets, err = a.secrets(); err != nil {
			return nil, err
		}
	}
	if isPostgres(name) {
		return a.openPostgres(ctx, name, o)
	}
	return a.openSQLite(ctx, name, o)
}

func isPostgres(name string) bool {
	return strings.HasPrefix(name, "postgres://") || strings.HasPrefix(name, "postgresql://") ||
		strings.Contains(name, "host=") || strings.Contains(name, "dbname=")
}

// poolConnections is enough for a person, and for a benchmark's dispatcher.
const poolConnections = 8

func (a *app) openPostgres(ctx context.Context, name string, o openOptions) (*database, error) {
	config, err := pgxpool.ParseConfig(name)
	if err != nil {
		return nil, usagef("--database: %w", err)
	}
	config.MaxConns = poolConnections
	if !o.prepare {
		config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
	}
	config.ConnConfig.RuntimeParams["application_name"] = "webhook command"
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("open the database: %w", err)
	}
	if err := pool.Ping(ctx); err != nil {
		pool.Close()
		return nil, fmt.Errorf("connect to the database: %w", err)
	}
	schema := first(o.schema, a.schema, postgres.DefaultSchema)
	store, err := postgres.NewWithConfig(pool, postgres.Config{Schema: schema})
	if err != nil {
		pool.Close()
		return nil, err
	}
	h, err := webhook.New(store, o.config)
	if err != nil {
		pool.Close()
		return nil, err
	}
	return &database{
		store: store, hooks: h, pg: pool, schema: schema,
		enqueue: func(ctx context.Context, e webhook.Event) (id uuid.UUID, err error) {
			err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
				res, err := h.Enqueue(ctx, tx, e)
				id = res.EventID
				return err
			})
			return id, err
		},
		table: func(name string) string { return pgx.Identifier{schema, name}.Sanitize() },
		close: func() { h.Close(); pool.Close() },
	}, nil
}

func (a *app) openSQLite(ctx context.Context, name string, o openOptions) (*database, error) {
	path := strings.TrimPrefix(name, "sqlite:")
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) && !o.create {
		return nil, fmt.Errorf("there is no file %s ('webhook migrate up' makes one)", path)
	}
	dsn := url.URL{Scheme: "file", Opaque: (&url.URL{Path: path}).EscapedPath(), RawQuery: "_txlock=immediate&_pragma=busy_timeout(5000)"}
	db, err := sql.Open("sqlite", dsn.String())
	if err != nil {
		return nil, fmt.Errorf("open the database: %w", err)
	}
	if err := db.PingContext(ctx); err != nil {
		db.Close()
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	prefix := first(o.prefix, a.tablePrefix, "webhook_")
	store, err := sqlite.NewWithConfig(db, sqlite.Config{TablePrefix: prefix})
	if err != nil {
		db.Close()
		return nil, err
	}
	h, err := webhook.New(store, o.config)
	if err != nil {
		db.Close()
		return nil, err
	}
	return &database{
		store: store, hooks: h, lite: db,
		enqueue: func(ctx context.Context, e webhook.Event) (uuid.UUID, error) {
			tx, err := db.BeginTx(ctx, nil)
			if err != nil {
				return uuid.Nil, err
			}
			defer tx.Rollback()
			res, err := h.Enqueue(ctx, tx, e)
			if err != nil {
				return uuid.Nil, err
			}
			return res.EventID, tx.Commit()
		},
		table: func(name string) string { return `"` + prefix + name + `"` },
		close: func() { h.Close(); db.Close() },
	}, nil
}

// offline returns the store of a database that is not connected to.
func (a *app) offline(ctx context.Context) (webhook.Migrator, func(), error) {
	name, err := a.databaseName()
	if err != nil {
		return nil, nil, err
	}
	if isPostgres(name) {
		pool, err := pgxpool.New(ctx, name)
		if err != nil {
			return nil, nil, usagef("--database: %w", err)
		}
		store, err := postgres.NewWithConfig(pool, postgres.Config{Schema: a.schema})
		if err != nil {
			pool.Close()
			return nil, nil, err
		}
		return store, pool.Close, nil
	}
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		return nil, nil, err
	}
	store, err := sqlite.NewWithConfig(db, sqlite.Config{TablePrefix: a.tablePrefix})
	if err != nil {
		db.Close()
		return nil, nil, err
	}
	return store, func() { db.Close() }, nil
}

func first(words ...string) string {
	for _, w := range words {
		if w != "" {
			return w
		}
	}
	return ""
}

const keysVariable = "WEBHOOK_KEYS"

// plaintext in it is for hosts that use InsecurePlaintext.
const plaintext = "insecure-plaintext"

// secrets is the box of WEBHOOK_KEYS.
func (a *app) secrets() (webhook.SecretBox, error) {
	text := a.getenv(keysVariable)
	switch text {
	case "":
		return noKeys{}, nil
	case plaintext:
		return webhook.InsecurePlaintext(), nil
	}
	var keys []webhook.Key
	for part := range strings.SplitSeq(text, ",") {
		key, err := webhook.ParseKey(strings.TrimSpace(part))
		if err != nil {
			return nil, usagef("WEBHOOK_KEYS: %w", err)
		}
		keys = append(keys, key)
	}
	return webhook.NewKeyring(keys[0], keys[1:]...), nil
}

// noKeys seals and opens nothing. Most commands need neither.
type noKeys struct{}

var errNoKeys = errors.New("this needs the keys that seal secrets: set WEBHOOK_KEYS to id:base64, as the service has them, the newest first, separated by commas")

func (noKeys) Seal(context.Context, []byte, []byte) ([]byte, error) { return nil, errNoKeys }
func (noKeys) Open(context.Context, []byte, []byte) ([]byte, error) { return nil, errNoKeys }
