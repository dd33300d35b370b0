package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/outhook/webhook"
)

func (a *app) migrateCommand() *cobra.Command {
	return group("migrate", "Bring the library's tables to a version, show it, or print the SQL",
		a.migrateUpCommand(), a.migrateDownCommand(), a.migrateStatusCommand(), a.migrateSQLCommand())
}

func (a *app) migrateUpCommand() *cobra.Command {
	to := -1
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Apply the migrations that are missing; does nothing when there are none",
		Long: `Applies the migrations that are missing. Several processes may do so at once, and
services may go on working. An SQLite file that does not exist is made.`,
		Args: args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx := cmd.Context()
			db, err := a.open(ctx, openOptions{create: true})
			if err != nil {
				return err
			}
			defer db.close()
			return a.migrate(ctx, db, func(before webhook.MigrationStatus) error {
				switch {
				case to < 0 || to == before.Latest:
					return db.store.Migrate(ctx)
				case to < before.Current:
					return usagef("--to %d is below the present version %d: that is 'webhook migrate down'", to, before.Current)
				}
				return db.store.MigrateTo(ctx, to)
			})
		},
	}
	cmd.Flags().IntVar(&to, "to", -1, "the version to go to (default: the latest)")
	return cmd
}

func (a *app) migrateDownCommand() *cobra.Command {
	var to int
	var yes bool
	cmd := &cobra.Command{
		Use:   "down --to VERSION --yes",
		Short: "Undo migrations; to version 0 removes the tables with everything in them",
		Args:  args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !cmd.Flags().Changed("to") {
				return usagef("to which version? Give --to; 0 removes everything")
			}
			if !yes {
				return usagef("going down loses what the newer tables hold, and version 0 all events and endpoints: give --yes if that is meant")
			}
			ctx := cmd.Context()
			db, err := a.open(ctx, openOptions{})
			if err != nil {
				return err
			}
			defer db.close()
			return a.migrate(ctx, db, func(before webhook.MigrationStatus) error {
				if to > before.Current {
					return usagef("--to %d is above the present version %d: that is 'webhook migrate up'", to, before.Current)
				}
				return db.store.MigrateTo(ctx, to)
			})
		},
	}
	cmd.Flags().IntVar(&to, "to", 0, "the version to go back to")
	cmd.Flags().BoolVar(&yes, "yes", false, "do it")
	return cmd
}

// migrate moves from version to version and says so.
func (a *app) migrate(ctx context.Context, db *database, move func(before webhook.MigrationStatus) error) error {
	before, err := db.store.MigrationStatus(ctx)
	if err != nil {
		return err
	}
	began := time.Now()
	if err := move(before); err != nil {
		return err
	}
	after, err := db.store.MigrationStatus(ctx)
	if err != nil {
		return err
	}
	if a.json {
		return a.printJSON(map[string]int{"from": before.Current, "to": after.Current, "latest": after.Latest})
	}
	if before.Current == after.Current {
		fmt.Fprintf(a.out, "Nothing to do: the schema has version %d.\n", after.Current)
		return nil
	}
	fmt.Fprintf(a.out, "Migrated from version %d to %d in %s.\n", before.Current, after.Current, time.Since(began).Round(time.Millisecond))
	return nil
}

type migrationJSON struct {
	Version   int       `json:"version"`
	Name      string    `json:"name"`
	Online    bool      `json:"online"`
	AppliedAt time.Time `json:"applied_at,omitzero"`
}

type migrationStatusJSON struct {
	Current    int             `json:"current"`
	Latest     int             `json:"latest"`
	Migrations []migrationJSON `json:"migrations"`
}

func (a *app) migrateStatusCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Show which migrations were applied; exit status 4 when some are missing",
		Args:  args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			db, err := a.open(cmd.Context(), openOptions{})
			if err != nil {
				return err
			}
			defer db.close()
			status, err := db.store.MigrationStatus(cmd.Context())
			if err != nil {
				return err
			}
			if err := a.printMigrations(status); err != nil {
				return err
			}
			if status.Current != status.Latest {
				return errProblem
			}
			return nil
		},
	}
}

func (a *app) printMigrations(status webhook.MigrationStatus) error {
	if a.json {
		out := migrationStatusJSON{Current: status.Current, Latest: status.Latest}
		for _, m := range status.Migrations {
			out.Migrations = append(out.Migrations, migrationJSON(m))
		}
		return a.printJSON(out)
	}
	err := a.printTable("VERSION|NAME|APPLIED (UTC)", func(row func(...any)) {
		for _, m := range status.Migrations {
			at := when(m.AppliedAt)
			if m.AppliedAt.IsZero() {
				at = "missing"
			}
			row(m.Version, m.Name, at)
		}
	})
	if err != nil {
		return err
	}
	switch {
	case status.Current == 0:
		fmt.Fprintln(a.out, "\nThe database has none of the library's tables. Run 'webhook migrate up'.")
	case status.Current < status.Latest:
		fmt.Fprintf(a.out, "\nVersion %d of %d. Run 'webhook migrate up'.\n", status.Current, status.Latest)
	case status.Current > status.Latest:
		fmt.Fprintf(a.out, "\nThe database has version %d, this command knows %d: use a newer one.\n", status.Current, status.Latest)
	}
	return nil
}

func (a *app) migrateSQLCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "sql",
		Short: "Print migrations as SQL for goose, Atlas, golang-migrate or psql",
		Long: `Prints the SQL that leads from one version to another, without looking at what the
database has. --database says only which kind it is: "postgres://" and "sqlite:" do.`,
		Args: args(cobra.NoArgs),
	}
	from := cmd.Flags().Int("from", 0, "the version that the database has")
	to := cmd.Flags().String("to", "latest", "the version to go to")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		store, closeStore, err := a.offline(cmd.Context())
		if err != nil {
			return err
		}
		defer closeStore()
		target := store.LatestVersion()
		if *to != "latest" {
			if target, err = strconv.Atoi(*to); err != nil {
				return usagef("--to is %q, want a version or latest", *to)
			}
		}
		if last := store.LatestVersion(); *from < 0 || *from > last || target < 0 || target > last {
			return usagef("versions are 0 to %d", last)
		}
		return store.MigrationSQL(a.out, *from, target)
	}
	return cmd
}
