package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outhook/webhook/internal/pgtest"
)

// cluster is the PostgreSQL that all sides use. Each measurement gets a database of
// its own, so that none finds what another left.
type cluster struct {
	server    *pgtest.Server
	admin     *pgx.Conn
	databases int
}

func startCluster(ctx context.Context, settings map[string]string) (*cluster, error) {
	server, err := pgtest.StartServer(pgtest.Options{Durable: true, Settings: settings}) //nolint:contextcheck // it bounds itself
	if err != nil {
		return nil, err
	}
	admin, err := pgx.Connect(ctx, server.URL())
	if err != nil {
		return nil, errors.Join(err, server.Stop())
	}
	c := &cluster{server: server, admin: admin}
	if err := c.checkDurable(ctx); err != nil {
		return nil, errors.Join(err, c.stop(ctx))
	}
	return c, nil
}

func (c *cluster) stop(ctx context.Context) error {
	return errors.Join(c.admin.Close(ctx), c.server.Stop())
}

// checkDurable refuses a server whose figures would mean nothing.
func (c *cluster) checkDurable(ctx context.Context) error {
	for _, name := range []string{"fsync", "synchronous_commit", "full_page_writes"} {
		value, err := c.setting(ctx, name)
		if err != nil {
			return err
		}
		if value != "on" {
			return fmt.Errorf("PostgreSQL runs with %s = %s, want on", name, value)
		}
	}
	return nil
}

func (c *cluster) setting(ctx context.Context, name string) (value string, err error) {
	if err := c.admin.QueryRow(ctx, `SELECT current_setting($1)`, name).Scan(&value); err != nil {
		return "", fmt.Errorf("reading the setting %s: %w", name, err)
	}
	return value, nil
}

// describe prints what the figures were measured on.
func (c *cluster) describe(ctx context.Context, w io.Writer) error {
	fmt.Fprintf(w, "machine     %s, GOMAXPROCS %d, %s, %s/%s\n",
		cpuModel(), runtime.GOMAXPROCS(0), runtime.Version(), runtime.GOOS, runtime.GOARCH)
	var settings []string
	for _, name := range []string{
		"server_version", "fsync", "synchronous_commit", "full_page_writes", "wal_sync_method",
		"shared_buffers", "max_wal_size", "wal_level",
	} {
		value, err := c.setting(ctx, name)
		if err != nil {
			return err
		}
		settings = append(settings, name+" "+value)
	}
	fmt.Fprintf(w, "postgresql  %s\n", strings.Join(settings, ", "))
	return nil
}

func cpuModel() string {
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return "unknown CPU"
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if name, value, ok := strings.Cut(lines.Text(), ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "unknown CPU"
}

// withDatabase calls fn with a pool of at most so many connections on a new, empty
// database, and drops that afterwards.
func (c *cluster) withDatabase(ctx context.Context, connections int32, fn func(*pgxpool.Pool) error) (err error) {
	c.databases++
	name := fmt.Sprintf("bench_%d", c.databases)
	if _, err := c.admin.Exec(ctx, "CREATE DATABASE "+name); err != nil {
		return fmt.Errorf("creating a database: %w", err)
	}
	defer func() {
		_, dropErr := c.admin.Exec(context.WithoutCancel(ctx), "DROP DATABASE "+name+" WITH (FORCE)")
		err = errors.Join(err, dropErr)
	}()
	config, err := pgxpool.ParseConfig(c.server.URL())
	if err != nil {
		return err
	}
	config.ConnConfig.Database = name
	config.MaxConns = connections
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return err
	}
	defer pool.Close()
	return fn(pool)
}

// settle writes out what was changed so far, so that it is not written while the next
// side is measured.
func (c *cluster) settle(ctx context.Context) error {
	if _, err := c.admin.Exec(ctx, "CHECKPOINT"); err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	runtime.GC()
	return nil
}
