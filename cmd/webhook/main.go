// Command webhook operates the library's part of a database, PostgreSQL or SQLite: it
// migrates it, shows and changes endpoints and deliveries, replays, follows attempts,
// plays a receiver, and says what is wrong. docs/cli.md is its manual.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/outhook/webhook"
)

// The exit statuses (docs/cli.md).
const (
	exitOK          = 0
	exitFailed      = 1   // something did not work
	exitUsage       = 2   // the command line makes no sense
	exitNotFound    = 3   // there is no such endpoint, delivery or job
	exitProblem     = 4   // a check found a problem
	exitInterrupted = 130 // stopped by a signal before it was done
)

// usageError is a mistake in the command line.
type usageError struct{ err error }

func (e usageError) Error() string { return e.err.Error() }
func (e usageError) Unwrap() error { return e.err }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// errProblem ends a check that has said what it found.
var errProblem = errors.New("problems found")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	status := run(ctx, os.Args[1:], os.Getenv, os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(status)
}

// run carries out one command line and returns the exit status.
func run(ctx context.Context, args []string, getenv func(string) string, stdin io.Reader, stdout, stderr io.Writer) int {
	a := &app{in: stdin, out: stdout, err: stderr, getenv: getenv}
	root := a.command()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	status := statusOf(ctx, err)
	switch {
	case err == nil, errors.Is(err, errProblem), status == exitInterrupted:
	default:
		fmt.Fprintln(stderr, "webhook:", err)
	}
	if status == exitUsage {
		fmt.Fprintln(stderr, "Run 'webhook --help', or the command with --help, for its usage.")
	}
	return status
}

func statusOf(ctx context.Context, err error) int {
	var usage usageError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &usage), errors.Is(err, webhook.ErrInvalid), strings.HasPrefix(err.Error(), "unknown command"):
		return exitUsage
	case errors.Is(err, webhook.ErrNotFound):
		return exitNotFound
	case errors.Is(err, errProblem):
		return exitProblem
	case ctx.Err() != nil:
		return exitInterrupted
	default:
		return exitFailed
	}
}

// app is what all commands share.
type app struct {
	in       io.Reader
	out, err io.Writer
	getenv   func(string) string

	database    string
	schema      string
	tablePrefix string
	json        bool
	color       string
}

func (a *app) command() *cobra.Command {
	root := &cobra.Command{
		Use:   "webhook",
		Short: "Operate outgoing webhooks: migrate, look, replay, follow, practise, check",
		Long: `Operates the part of a PostgreSQL or SQLite database in which
github.com/outhook/webhook keeps events, endpoints and deliveries.

The database is named by --database, or by the environment variable
WEBHOOK_DATABASE, or by DATABASE_URL: a postgres:// URL, or the path of an SQLite
file. Commands that change an endpoint's secrets or headers need the keys that seal
them, in WEBHOOK_KEYS: id:base64, the newest first, separated by commas.

Exit status: 0 done, 1 failed, 2 wrong usage, 3 not found, 4 a check found a
problem, 130 interrupted.`,
		SilenceErrors:     true,
		SilenceUsage:      true,
		PersistentPreRunE: func(*cobra.Command, []string) error { return a.checkFlags() },
	}
	flags := root.PersistentFlags()
	flags.StringVarP(&a.database, "database", "d", "", "the database: a postgres:// URL or the path of an SQLite file")
	flags.StringVar(&a.schema, "schema", "", `PostgreSQL: the schema of the library's tables (default "webhook")`)
	flags.StringVar(&a.tablePrefix, "table-prefix", "", `SQLite: what the names of the library's tables begin with (default "webhook_")`)
	flags.BoolVar(&a.json, "json", false, "print JSON: one value, or one per line where there are many over time")
	flags.StringVar(&a.color, "color", "auto", "colours: auto, always or never")
	root.AddCommand(
		a.migrateCommand(), a.endpointsCommand(), a.deliveriesCommand(), a.replayCommand(), a.tailCommand(),
		a.listenCommand(), a.doctorCommand(), a.benchCommand(),
	)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	return root
}

func (a *app) checkFlags() error {
	switch a.color {
	case "auto", "always", "never":
		return nil
	}
	return usagef("--color is %q, want auto, always or never", a.color)
}

// args makes mistakes in the number of arguments mistakes of usage.
func args(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return usageError{err}
		}
		return nil
	}
}

// group makes a command that does nothing but hold others.
func group(use, short string, commands ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{
		Use:   use,
		Short: short,
		Args:  args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			_ = cmd.Help()
			return usagef("%s needs one of its commands", cmd.CommandPath())
		},
	}
	c.AddCommand(commands...)
	return c
}
