// Command quickstart shows the whole way of an event on one machine with nothing
// installed: an SQLite file, a receiver on loopback, events enqueued in
// transactions, and a dispatcher that delivers them. With -serve it then stays up, goes on
// taking orders, and shows the operators' pages of package admin.
package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"sync/atomic"
	"text/tabwriter"
	"time"

	_ "modernc.org/sqlite"

	"github.com/outhook/webhook"
	"github.com/outhook/webhook/store/sqlite"
	"github.com/outhook/webhook/verify"
)

func main() {
	serve := flag.Bool("serve", false, "stay up and show the pages")
	address := flag.String("address", "127.0.0.1:8080", "where to serve them")
	flag.Parse()
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt)
	defer cancel()
	var pages net.Listener
	if *serve {
		var err error
		if pages, err = (&net.ListenConfig{}).Listen(ctx, "tcp", *address); err != nil {
			fmt.Fprintln(os.Stderr, "quickstart:", err)
			os.Exit(1)
		}
	}
	if err := run(ctx, os.Stdout, pages); err != nil {
		fmt.Fprintln(os.Stderr, "quickstart:", err)
		os.Exit(1)
	}
}

// run does the whole round, and serves pages after it unless that is nil.
func run(ctx context.Context, out io.Writer, pages net.Listener) error {
	db, closeDB, err := openDatabase(ctx)
	if err != nil {
		return err
	}
	defer closeDB()
	store := sqlite.New(db)
	if err := store.Migrate(ctx); err != nil {
		return err
	}
	hooks, err := newHooks(store)
	if err != nil {
		return err
	}
	defer hooks.Close()

	receiver, err := newReceiver(ctx, hooks)
	if err != nil {
		return err
	}
	defer receiver.Close()

	enqueued, rolledBack, err := doBusiness(ctx, db, hooks)
	if err != nil {
		return err
	}
	round, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	attempts, err := deliver(round, hooks, out, enqueued)
	if err != nil {
		return err
	}
	if n := int(receiver.verified.Load()); n != enqueued {
		return fmt.Errorf("the receiver verified %d events, not %d", n, enqueued)
	}
	fmt.Fprintf(out, "\n%d enqueued, %d delivered, %d rolled back, %d attempts\n", enqueued, enqueued, rolledBack, attempts)
	if pages == nil {
		return nil
	}
	return serve(ctx, db, hooks, out, pages)
}

// openDatabase makes an SQLite file that is gone when the program ends. The
// parameters are what the store asks of every SQLite host: transactions that
// take the write lock when they begin, and wait for it.
func openDatabase(ctx context.Context) (*sql.DB, func(), error) {
	dir, err := os.MkdirTemp("", "webhook-quickstart-")
	if err != nil {
		return nil, nil, err
	}
	dsn := "file:" + filepath.Join(dir, "shop.db") + "?_txlock=immediate&_pragma=busy_timeout(5000)&_pragma=journal_mode(wal)"
	db, err := sql.Open("sqlite", dsn)
	if err != nil {
		return nil, nil, err
	}
	if _, err := db.ExecContext(ctx, `CREATE TABLE orders (id TEXT PRIMARY KEY, amount INTEGER NOT NULL)`); err != nil {
		return nil, nil, errors.Join(err, db.Close())
	}
	return db, func() { db.Close(); os.RemoveAll(dir) }, nil
}

func newHooks(store *sqlite.Store) (*webhook.Hooks[*sql.Tx], error) {
	// Receivers on loopback are refused by default. This opens loopback, and
	// nothing else, for this program.
	transport, err := webhook.NewTransport(webhook.TransportConfig{
		Allow:     []webhook.AllowRule{{Prefix: netip.MustParsePrefix("127.0.0.1/32"), Ports: []webhook.PortRange{{From: 1024, To: 65535}}}},
		AllowHTTP: true,
	})
	if err != nil {
		return nil, err
	}
	return webhook.New(store, webhook.Config{
		Secrets:   webhook.NewKeyring(webhook.NewKey("quickstart")), // a real host keeps its key
		Transport: transport,
	})
}

// receiver is the customer's side: it verifies signatures and fails the first
// request, as receivers do.
type receiver struct {
	*httptest.Server
	verified atomic.Int64
}

func newReceiver(ctx context.Context, hooks *webhook.Hooks[*sql.Tx]) (*receiver, error) {
	r := &receiver{}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	endpoint, err := hooks.Endpoints().Create(ctx, webhook.EndpointParams{
		Tenant: "acme",
		URL:    "http://" + listener.Addr().String() + "/in",
		Types:  []string{"order.*"},
	})
	if err != nil {
		return nil, err
	}
	var failed atomic.Bool
	handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if failed.CompareAndSwap(false, true) {
			http.Error(w, "not ready yet", http.StatusInternalServerError)
			return
		}
		r.verified.Add(1)
		w.WriteHeader(http.StatusNoContent)
	})
	r.Server = httptest.NewUnstartedServer(verify.Middleware(endpoint.Secret.Reveal())(handler))
	r.Listener.Close()
	r.Listener = listener
	r.Start()
	return r, nil
}

// doBusiness takes orders, each with its event in one transaction. The last
// customer changes their mind.
func doBusiness(ctx context.Context, db *sql.DB, hooks *webhook.Hooks[*sql.Tx]) (enqueued, rolledBack int, err error) {
	for i := range 6 {
		committed, err := takeOrder(ctx, db, hooks, fmt.Sprintf("order_%d", i+1), 100*(i+1), i < 5)
		switch {
		case err != nil:
			return 0, 0, err
		case committed:
			enqueued++
		default:
			rolledBack++
		}
	}
	return enqueued, rolledBack, nil
}

func takeOrder(ctx context.Context, db *sql.DB, hooks *webhook.Hooks[*sql.Tx], id string, amount int, keep bool) (committed bool, err error) {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return false, err
	}
	defer tx.Rollback() // harmless after Commit
	if _, err := tx.ExecContext(ctx, `INSERT INTO orders (id, amount) VALUES (?, ?)`, id, amount); err != nil {
		return false, err
	}
	payload, err := json.Marshal(map[string]any{"order": id, "amount": amount})
	if err != nil {
		return false, err
	}
	if _, err := hooks.Enqueue(ctx, tx, webhook.Event{
		Tenant:         "acme",
		Type:           "order.paid",
		ResourceID:     id,
		IdempotencyKey: id + ":paid",
		Payload:        payload,
	}); err != nil {
		return false, err
	}
	if !keep {
		return false, nil
	}
	return true, tx.Commit()
}

// deliver runs a dispatcher until all events are delivered, and returns how many
// attempts that took.
func deliver(ctx context.Context, hooks *webhook.Hooks[*sql.Tx], out io.Writer, want int) (attempts int, err error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	table := newTable(out, want, stop)
	retry := webhook.DefaultRetrySchedule()
	retry.Delays[0] = time.Second // instead of five: nobody likes to wait for an example
	dispatcher, err := hooks.NewDispatcher(webhook.DispatcherConfig{Observer: table, Retry: retry})
	if err != nil {
		return 0, err
	}
	if err := dispatcher.Run(ctx); err != nil {
		return 0, err
	}
	if table.delivered != want {
		return 0, fmt.Errorf("%d of %d events delivered in time", table.delivered, want)
	}
	return table.attempts, nil
}

// table prints attempts as they happen.
type table struct {
	mu        sync.Mutex
	w         *tabwriter.Writer
	attempts  int
	delivered int
	want      int
	all       func() // called when all are delivered
}

func newTable(out io.Writer, want int, all func()) *table {
	t := &table{w: tabwriter.NewWriter(out, 14, 0, 2, ' ', 0), want: want, all: all}
	fmt.Fprintln(t.w, "TIME\tEVENT\tATTEMPT\tSTATUS\tLATENCY\tTHEN")
	t.w.Flush()
	return t
}

// AttemptDone implements webhook.Observer.
func (t *table) AttemptDone(a webhook.AttemptReport) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.attempts++
	then := string(a.State)
	if a.State == webhook.StatePending {
		then = "retry in " + time.Until(a.NextAttemptAt).Round(100*time.Millisecond).String()
	}
	fmt.Fprintf(t.w, "%s\t…%s\t%d\t%d\t%s\t%s\n", a.StartedAt.Local().Format("15:04:05.000"),
		a.EventID.String()[28:], a.Number, a.Status, a.Latency.Round(10*time.Microsecond), then)
	t.w.Flush()
	if a.State == webhook.StateDelivered {
		t.delivered++
	}
	if t.delivered == t.want {
		t.all()
	}
}
