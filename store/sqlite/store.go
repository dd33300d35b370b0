package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/outhook/webhook"
	"github.com/outhook/webhook/internal/migration"
	"github.com/outhook/webhook/internal/timeid"
)

// Config are the options of a [Store]. The zero Config is ready to use.
type Config struct {
	// AllowLockErrors makes Migrate accept a database that was opened without a
	// busy timeout or without immediate transactions. The host must then expect
	// "database is locked" from its own statements.
	AllowLockErrors bool

	// LockTimeout is how long a write of the library waits for other writers
	// before it gives up with the driver's error. Zero means 30 s; negative
	// means until its context ends.
	LockTimeout time.Duration

	// TablePrefix begins the name of every table and index. It has letters,
	// digits and underscores only, begins with a letter or an underscore but
	// not with "sqlite_", and is at most 40 bytes long. Empty means "webhook_".
	TablePrefix string
}

const (
	defaultLockTimeout = 30 * time.Second
	defaultPrefix      = "webhook_"
	maxPrefix          = 40
)

// Store keeps everything in an SQLite database. It is a [webhook.Store] for
// hosts whose transactions are *sql.Tx, and is safe for concurrent use.
type Store struct {
	db          *sql.DB
	allow       bool
	lockTimeout time.Duration
	prefix      string
	migrations  []migration.Migration

	queries sync.Map // query -> string: with the prefix put in

	writer writer
	ids    timeid.Generator // of deliveries
}

var (
	_ webhook.Store[*sql.Tx] = (*Store)(nil)
	_ webhook.Migrator       = (*Store)(nil)

	_ webhook.AttemptFollower = (*Store)(nil)
)

// New returns a store on db, which stays the caller's to close, with tables whose
// names begin with "webhook_". It does not connect; call [Store.Migrate] before the
// first use of a database. It panics if db is nil.
func New(db *sql.DB) *Store {
	s, err := NewWithConfig(db, Config{})
	if err != nil {
		panic(err)
	}
	return s
}

// NewWithConfig is New with a configuration. What it refuses, a nil db too, it
// reports with a [webhook.InvalidError].
func NewWithConfig(db *sql.DB, config Config) (*Store, error) {
	s := &Store{
		db:          db,
		allow:       config.AllowLockErrors,
		lockTimeout: cmp.Or(config.LockTimeout, defaultLockTimeout),
		prefix:      cmp.Or(config.TablePrefix, defaultPrefix),
		writer:      newWriter(),
	}
	if db == nil {
		return nil, &webhook.InvalidError{Field: "db", Problem: "is nil"}
	}
	if err := checkPrefix(s.prefix); err != nil {
		return nil, err
	}
	var err error
	if s.migrations, err = loadMigrations(s.prefix); err != nil {
		return nil, err
	}
	return s, nil
}

var prefixPattern = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

func checkPrefix(prefix string) error {
	const field = "Config.TablePrefix"
	switch {
	case len(prefix) > maxPrefix:
		return &webhook.InvalidError{
			Field:   field,
			Problem: fmt.Sprintf("is %d bytes, over the limit of %d", len(prefix), maxPrefix),
			Limit:   maxPrefix,
		}
	case !prefixPattern.MatchString(prefix):
		return &webhook.InvalidError{
			Field:   field,
			Problem: fmt.Sprintf("is %q: only letters, digits and underscores, not beginning with a digit", prefix),
		}
	case strings.HasPrefix(strings.ToLower(prefix), "sqlite_"):
		return &webhook.InvalidError{
			Field:   field,
			Problem: fmt.Sprintf("is %q: names beginning with sqlite_ are SQLite's own", prefix),
		}
	}
	return nil
}

// query is SQL in which {{prefix}} stands for the prefix of the tables.
type query string

func (s *Store) sql(q query) string {
	if text, ok := s.queries.Load(q); ok {
		return text.(string)
	}
	text := strings.ReplaceAll(string(q), "{{prefix}}", s.prefix)
	s.queries.Store(q, text)
	return text
}

// statements are prepared on one connection.
type statements []*sql.Stmt

func (s *Store) prepareAll(ctx context.Context, c *sql.Conn, queries ...query) (statements, error) {
	var all statements
	for _, q := range queries {
		st, err := c.PrepareContext(ctx, s.sql(q))
		if err != nil {
			all.close()
			return nil, err
		}
		all = append(all, st)
	}
	return all, nil
}

func (all statements) close() {
	for _, st := range all {
		_ = st.Close() // releases memory only
	}
}
