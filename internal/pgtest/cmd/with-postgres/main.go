// Command with-postgres runs a command with a throw-away PostgreSQL and ends with the
// command's exit status. The server's URL is in WEBHOOK_TEST_POSTGRES; one that is
// already set there is used instead.
//
//	go run ./internal/pgtest/cmd/with-postgres go test ./...
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"github.com/outhook/webhook/internal/pgtest"
)

func main() {
	durable := flag.Bool("durable", false, "keep PostgreSQL's own settings for fsync and synchronous_commit, as benchmarks need")
	installed := flag.Bool("installed", false, "only report by the exit status whether PostgreSQL is installed")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: with-postgres [-durable] command [argument...]")
		flag.PrintDefaults()
	}
	flag.Parse()

	if *installed {
		if err := pgtest.Installed(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if flag.NArg() == 0 {
		flag.Usage()
		os.Exit(2)
	}
	status, err := run(pgtest.Options{Durable: *durable}, flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "with-postgres:", err)
	}
	os.Exit(status)
}

// run returns the command's exit status, or 1 if it could not be run.
func run(o pgtest.Options, args []string) (status int, err error) {
	// We outlive the command, to stop the server. An interrupt from the terminal has
	// reached the command as well, which is in our process group; SIGTERM has not.
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)

	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = os.Environ()
	if os.Getenv(pgtest.Env) == "" {
		server, startErr := pgtest.StartServer(o)
		if startErr != nil {
			return 1, startErr
		}
		defer func() { err = errors.Join(err, server.Stop()) }()
		cmd.Env = append(cmd.Env, pgtest.Env+"="+server.URL())
	}
	if err := cmd.Start(); err != nil {
		return 1, fmt.Errorf("running %s: %w", args[0], err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for {
		select {
		case sig := <-signals:
			if sig == syscall.SIGTERM {
				_ = cmd.Process.Signal(sig) // it may have just ended
			}
		case err := <-ended:
			if exit, ok := errors.AsType[*exec.ExitError](err); ok {
				return max(exit.ExitCode(), 1), nil
			}
			if err != nil {
				return 1, fmt.Errorf("running %s: %w", args[0], err)
			}
			return 0, nil
		}
	}
}
