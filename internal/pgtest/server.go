package pgtest

import (
	"context"
	"crypto/rand"
	_ "embed"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// startTimeout bounds the wait for a server to answer: a second is usual, crash
// recovery of a large cluster takes longer.
const startTimeout = 60 * time.Second

// errPortTaken says that somebody took the port between choosing it and binding it.
var errPortTaken = errors.New("port was taken")

// Options chooses what kind of cluster StartServer makes. The zero value is fast and
// forgetful, which is right for tests of behaviour.
type Options struct {
	// Durable keeps PostgreSQL's own settings for fsync, synchronous_commit and
	// full_page_writes, and its files on a disk: for benchmarks whose figures must mean
	// something, for tests that crash the server, and for gigabytes of rows. The
	// default turns them off and prefers a memory file system.
	Durable bool
	// Settings are server settings (postgresql.conf) that override those chosen here,
	// such as {"max_connections": "50"}.
	Settings map[string]string
}

// Server is a throw-away PostgreSQL cluster on a loopback port. Its methods are not
// safe for concurrent use, except URL.
type Server struct {
	programs programs
	options  Options
	dir      string
	port     int
	password string

	supervisor *exec.Cmd
	leash      *os.File // the supervisor ends the server when this is closed
}

// Start is StartServer for one test: it fails t on an error and stops the server when
// t ends.
func Start(t testing.TB, o Options) *Server {
	t.Helper()

	s, err := StartServer(o)
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Errorf("pgtest: %v", err)
		}
	})
	return s
}

// StartServer makes a cluster in a temporary directory, starts it and waits until it
// answers. Stop ends it; if the calling process ends first, in whatever way, it ends
// too. An error names what to install when PostgreSQL is missing.
func StartServer(o Options) (*Server, error) {
	p, err := findPrograms()
	if err != nil {
		return nil, err
	}
	parents := fastParents()
	if o.Durable {
		parents = durableParents()
	}
	dir, err := makeDir(parents)
	if err != nil {
		return nil, err
	}
	s := &Server{programs: p, options: o, dir: dir, password: rand.Text()}
	if err := s.initialise(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	if err := s.startOnFreePort(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return s, nil
}

// URL is the address of the server's own database, as a superuser.
func (s *Server) URL() string {
	u := url.URL{
		Scheme:   "postgres",
		User:     url.UserPassword(superuser, s.password),
		Host:     net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)),
		Path:     "/postgres",
		RawQuery: "sslmode=disable",
	}
	return u.String()
}

// Dir is the directory that holds the cluster and its log, removed by Stop.
func (s *Server) Dir() string { return s.dir }

// Stop ends the server at once and removes its files.
func (s *Server) Stop() error {
	if s.supervisor == nil {
		return removeAll(s.dir)
	}
	return s.release("")
}

// Crash ends the server at once, as a power cut would for its clients, and keeps its
// files for Restart.
func (s *Server) Crash() error {
	return s.release("keep\n")
}

// Restart starts a crashed server again, on the same port.
func (s *Server) Restart() error {
	return s.start()
}

// release tells the supervisor to end the server, and waits for it.
func (s *Server) release(order string) error {
	_, writeErr := s.leash.WriteString(order)
	closeErr := s.leash.Close()
	waitErr := s.supervisor.Wait()
	s.supervisor, s.leash = nil, nil
	if err := errors.Join(writeErr, closeErr, waitErr); err != nil {
		return fmt.Errorf("stopping PostgreSQL: %w", err)
	}
	return nil
}

const superuser = "postgres"

func (s *Server) initialise() error {
	// Passwords, because whoever may log in as a superuser may run programs as the
	// server's user, and a loopback port is open to everybody on the machine.
	passwordFile := filepath.Join(s.dir, "password")
	if err := os.WriteFile(passwordFile, []byte(s.password+"\n"), 0o600); err != nil {
		return fmt.Errorf("writing the password file: %w", err)
	}
	if err := giveToServer(passwordFile); err != nil {
		return err
	}
	cmd := exec.Command(s.programs.initdb,
		"--pgdata="+s.dataDir(), "--username="+superuser, "--pwfile="+passwordFile, "--auth=password",
		"--encoding=UTF8", "--locale=C", "--no-sync")
	cmd.Dir = s.dir
	asServerUser(cmd)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w\n%s", err, out)
	}
	return nil
}

func (s *Server) dataDir() string  { return filepath.Join(s.dir, "data") }
func (s *Server) logFile() string  { return filepath.Join(s.dir, "log") }
func (s *Server) endFile() string  { return filepath.Join(s.dir, "exited") } // made by supervise.sh
func (s *Server) keepFile() string { return filepath.Join(s.dir, "keep") }   // made by supervise.sh

func (s *Server) startOnFreePort() error {
	var err error
	for range 5 {
		if s.port, err = freePort(); err != nil {
			return err
		}
		if err = s.start(); !errors.Is(err, errPortTaken) {
			return err
		}
	}
	return err
}

//go:embed supervise.sh
var superviseScript string

// start runs the supervisor, a shell that reads from our pipe and ends the server when
// the pipe is closed, which the kernel does for us whatever becomes of this process.
// There is no goroutine and no open copy of our standard output in it, so that neither
// goleak nor `go test` waits for it.
func (s *Server) start() error {
	// What a run before this one left: it would be taken for the end of this one.
	for _, mark := range []string{s.endFile(), s.keepFile()} {
		if err := removeAll(mark); err != nil {
			return err
		}
	}
	leashEnd, leash, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("making the supervisor's pipe: %w", err)
	}
	defer leashEnd.Close()
	log, err := os.OpenFile(s.logFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		leash.Close()
		return fmt.Errorf("opening the server's log: %w", err)
	}
	defer log.Close()

	args := []string{"-c", superviseScript, "supervise", s.dir, s.programs.postgres, "-D", s.dataDir()}
	for name, value := range s.settings() {
		args = append(args, "-c", name+"="+value)
	}
	cmd := exec.Command("/bin/sh", args...)
	cmd.Dir = s.dir
	cmd.Stdin, cmd.Stdout, cmd.Stderr = leashEnd, log, log
	asServerUser(cmd)
	inOwnGroup(cmd)
	if err := cmd.Start(); err != nil {
		leash.Close()
		return fmt.Errorf("starting PostgreSQL: %w", err)
	}
	s.supervisor, s.leash = cmd, leash

	if err := s.awaitReady(); err != nil {
		return errors.Join(err, s.Crash())
	}
	return nil
}

func (s *Server) settings() map[string]string {
	settings := map[string]string{
		"listen_addresses":          "127.0.0.1",
		"port":                      strconv.Itoa(s.port),
		"unix_socket_directories":   "",
		"max_connections":           "300",
		"shared_buffers":            "256MB",
		"max_locks_per_transaction": "256", // partitions
		"max_wal_size":              "4GB", // benchmarks measure the work, not checkpoints
		"timezone":                  "UTC",
		"log_checkpoints":           "off",
	}
	if !s.options.Durable {
		maps.Copy(settings, map[string]string{
			"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off",
			"wal_level": "minimal", "max_wal_senders": "0", "jit": "off",
			"max_wal_size": "256MB", // it may be memory
		})
	}
	maps.Copy(settings, s.options.Settings)
	return settings
}

// awaitReady returns when the server lets us in, or has ended, or time is up.
func (s *Server) awaitReady() error {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		lastErr := ping(ctx, s.URL())
		if lastErr == nil {
			return nil
		}
		if _, err := os.Stat(s.endFile()); err == nil {
			log := s.logTail()
			if strings.Contains(log, "could not bind") {
				return errPortTaken
			}
			return fmt.Errorf("PostgreSQL ended while starting:\n%s", log)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("PostgreSQL did not answer within %s: %w\n%s", startTimeout, lastErr, s.logTail())
		}
	}
}

// ping proves by the password that it is our server which listens there.
func ping(ctx context.Context, server string) error {
	conn, err := pgx.Connect(ctx, server)
	if err != nil {
		return err
	}
	return conn.Close(ctx)
}

func (s *Server) logTail() string {
	log, err := os.ReadFile(s.logFile())
	if err != nil {
		return err.Error()
	}
	return string(log[max(0, len(log)-4096):])
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("looking for a free port: %w", err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// fromEnv returns the shared server's URL, or "".
func fromEnv() string { return os.Getenv(Env) }
