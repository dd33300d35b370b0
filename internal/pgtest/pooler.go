package pgtest

import (
	"context"
	"errors"
	"net"
	"net/url"
	"slices"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Pooler is a proxy that gives a client a server connection for one transaction
// at a time, and another one for the next, as PgBouncer does in transaction mode.
// It refuses start-up parameters that would be state of a session.
type Pooler struct {
	url      string
	accepts  []string
	listener net.Listener

	mu   sync.Mutex // protects idle
	idle []*pgconn.HijackedConn
}

// StartPooler starts one in front of the database at the URL. Besides user, database
// and client_encoding it accepts the given start-up parameters and ignores them.
func StartPooler(t testing.TB, databaseURL string, accepts ...string) *Pooler {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("pgtest: starting a pooler: %v", err)
	}
	p := &Pooler{url: databaseURL, accepts: append(accepts, "user", "database", "client_encoding"), listener: listener}
	ctx, cancel := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	clients.Go(func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			clients.Go(func() {
				defer c.Close()
				defer context.AfterFunc(ctx, func() { _ = c.Close() })()
				_ = p.serve(ctx, c) // the client sees what goes wrong
			})
		}
	})
	t.Cleanup(func() {
		cancel()
		_ = listener.Close()
		clients.Wait()
		for _, s := range p.idle {
			_ = s.Conn.Close()
		}
	})
	return p
}

// URL returns the database's that leads through the pooler.
func (p *Pooler) URL(t testing.TB) string {
	t.Helper()
	u, err := url.Parse(p.url)
	if err != nil {
		t.Fatalf("pgtest: the URL of a pooled database: %v", err)
	}
	u.Host = p.listener.Addr().String()
	query := u.Query()
	query.Set("sslmode", "disable")
	u.RawQuery = query.Encode()
	return u.String()
}

// Config returns a pool's configuration that leads through the pooler.
func (p *Pooler) Config(t testing.TB, mode pgx.QueryExecMode) *pgxpool.Config {
	t.Helper()
	config, err := pgxpool.ParseConfig(p.url)
	if err != nil {
		t.Fatalf("pgtest: the URL of a pooled database: %v", err)
	}
	address := p.listener.Addr().(*net.TCPAddr)
	config.ConnConfig.Host, config.ConnConfig.Port = address.IP.String(), uint16(address.Port)
	config.ConnConfig.Fallbacks = nil
	config.ConnConfig.TLSConfig = nil
	config.ConnConfig.DefaultQueryExecMode = mode
	config.MaxConns = 12
	return config
}

func (p *Pooler) serve(ctx context.Context, c net.Conn) error {
	client := pgproto3.NewBackend(c, c)
	startup, err := client.ReceiveStartupMessage()
	if err != nil {
		return err
	}
	message, ok := startup.(*pgproto3.StartupMessage)
	if !ok {
		return errors.New("no start-up message")
	}
	for name := range message.Parameters {
		if !slices.Contains(p.accepts, name) {
			client.Send(&pgproto3.ErrorResponse{Severity: "FATAL", Code: "08P01", Message: "unsupported startup parameter: " + name})
			return client.Flush()
		}
	}
	client.Send(&pgproto3.AuthenticationOk{})
	client.Send(&pgproto3.ParameterStatus{Name: "standard_conforming_strings", Value: "on"})
	client.Send(&pgproto3.ParameterStatus{Name: "client_encoding", Value: "UTF8"})
	client.Send(&pgproto3.BackendKeyData{SecretKey: []byte{0, 0, 0, 0}})
	client.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
	if err := client.Flush(); err != nil {
		return err
	}

	var server *pgconn.HijackedConn
	defer func() {
		if server != nil {
			_ = server.Conn.Close() // in mid-transaction: nobody else may have it
		}
	}()
	for {
		request, err := client.Receive()
		if err != nil {
			return err
		}
		if _, ok := request.(*pgproto3.Terminate); ok {
			return nil
		}
		if server == nil {
			if server, err = p.take(ctx); err != nil {
				return err
			}
		}
		server.Frontend.Send(request)
		switch request.(type) {
		case *pgproto3.Sync, *pgproto3.Query:
		default:
			continue
		}
		if err := server.Frontend.Flush(); err != nil {
			return err
		}
		status, err := relay(server.Frontend, client)
		if err != nil {
			return err
		}
		if status == 'I' {
			p.give(server)
			server = nil
		}
	}
}

// relay passes on what the server says, up to and with its being ready.
func relay(server *pgproto3.Frontend, client *pgproto3.Backend) (status byte, err error) {
	for {
		message, err := server.Receive()
		if err != nil {
			return 0, err
		}
		client.Send(message)
		ready, ok := message.(*pgproto3.ReadyForQuery)
		// Receive reuses its messages, so each goes out before the next.
		if err := client.Flush(); err != nil {
			return 0, err
		}
		if ok {
			return ready.TxStatus, nil
		}
	}
}

// take gives out the connection that has been idle for longest, so that no
// client gets the same one twice in a row; with fewer than three it makes more.
func (p *Pooler) take(ctx context.Context) (*pgconn.HijackedConn, error) {
	p.mu.Lock()
	if len(p.idle) >= 3 {
		s := p.idle[0]
		p.idle = p.idle[1:]
		p.mu.Unlock()
		return s, nil
	}
	p.mu.Unlock()
	c, err := pgconn.Connect(ctx, p.url)
	if err != nil {
		return nil, err
	}
	return c.Hijack()
}

func (p *Pooler) give(s *pgconn.HijackedConn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.idle = append(p.idle, s)
}
