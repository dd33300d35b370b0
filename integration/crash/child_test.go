package crash_test

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/outhook/webhook"
	"github.com/outhook/webhook/internal/machine"
)

// childEnv makes this program one of the processes under test.
const childEnv = "WEBHOOK_CRASH_CHILD"

// orders is what a process does.
type orders struct {
	Kind   string `json:"kind"`
	URL    string `json:"url"`
	Number int    `json:"number"`

	Tenants  []string       `json:"tenants"` // take orders for these; none: take none
	Dispatch bool           `json:"dispatch"`
	Circuits bool           `json:"circuits"` // with the default breaker, instead of none
	Hot      bool           `json:"hot"`      // with fewer slots than a host may take: see hotConfig
	Serves   webhook.Serves `json:"serves"`   // whom to send for; tenants are of the region that their name begins with
	Soak     bool           `json:"soak"`     // as the soak wants it: see soakConfig; errors of the database are its doing

	Point point `json:"point"` // where to end, or to wait; empty: nowhere
	Nth   int   `json:"nth"`   // at which passing of the point, from 1
	Hold  bool  `json:"hold"`  // wait there for a line on standard input instead of ending

	ClockOffset time.Duration `json:"clockOffset"`
}

func TestMain(m *testing.M) {
	if raw := os.Getenv(childEnv); raw != "" {
		if err := child(raw); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	// Most tests wait for leases and for databases, not for a processor.
	if err := flag.Set("test.parallel", "6"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// child does what it is told until its standard input ends or says "stop". It
// says what happens on its standard output, a line each.
func child(raw string) error {
	var o orders
	if err := json.Unmarshal([]byte(raw), &o); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	c := &childProcess{orders: o, released: make(chan struct{})}
	go c.obey(stop)

	w := watch{at: c.at, takeovers: func(n int) { fmt.Println("takeover", n) }}
	settings := options{
		log:   slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
		clock: machine.Clock{Offset: o.ClockOffset},
		watch: w,
		transport: func(next http.RoundTripper) http.RoundTripper {
			return watchedTransport{RoundTripper: next, watch: w, sender: strconv.Itoa(o.Number)}
		},
	}
	h, err := openHost(ctx, o.Kind, o.URL, settings)
	for o.Soak && err != nil && ctx.Err() == nil { // the database is away
		pause(ctx, 50*time.Millisecond)
		h, err = openHost(ctx, o.Kind, o.URL, settings)
	}
	if err != nil {
		if ctx.Err() != nil {
			return nil // stopped before it began
		}
		return err
	}
	defer h.close()

	var work sync.WaitGroup
	if len(o.Tenants) > 0 {
		takers := 2
		if o.Soak {
			takers = 5
		}
		for i := range takers {
			work.Go(func() { c.takeOrders(ctx, h, fmt.Sprintf("%d/%d", o.Number, i)) })
		}
	}
	if o.Dispatch {
		cfg := quick()
		switch {
		case o.Soak:
			cfg = soakConfig()
		case o.Hot:
			cfg = hotConfig()
		case o.Circuits:
			cfg.Breaker = webhook.BreakerConfig{}
		}
		cfg.Serves, cfg.TenantLimits = o.Serves, byRegion
		err = h.run(ctx, cfg)
		for o.Soak && err != nil && ctx.Err() == nil { // as above
			pause(ctx, 50*time.Millisecond)
			err = h.run(ctx, cfg)
		}
	}
	<-ctx.Done()
	work.Wait()
	return err
}

type childProcess struct {
	orders   orders
	released chan struct{}

	mu     sync.Mutex // protects passed
	passed int
}

// obey reads orders from the parent.
func (c *childProcess) obey(stop func()) {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		switch lines.Text() {
		case "go":
			close(c.released)
		case "stop":
			stop()
		case "footprint":
			runtime.GC()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			fmt.Println("footprint", runtime.NumGoroutine(), m.HeapInuse)
		}
	}
	os.Exit(3) // the parent is gone
}

// at ends the process, or waits, at the point that was chosen.
func (c *childProcess) at(p point, events string) {
	if p != c.orders.Point {
		return
	}
	c.mu.Lock()
	c.passed++
	here := c.passed == c.orders.Nth
	c.mu.Unlock()
	if !here {
		return
	}
	fmt.Printf("hit %s\n", events)
	if c.orders.Hold {
		<-c.released
		return
	}
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {} // not a step further
}

// takeOrders takes orders, of which customers cancel some before the commit. They are
// about one resource, one after the other.
func (c *childProcess) takeOrders(ctx context.Context, h *host, resource string) {
	for version := int64(1); ctx.Err() == nil; version++ {
		id := uuid.New()
		keep := rand.IntN(5) > 0
		tenant := c.orders.Tenants[rand.IntN(len(c.orders.Tenants))]
		err := h.order(ctx, placedBy(resource, version, id, tenant), func() bool {
			pause(ctx, time.Duration(rand.IntN(10))*time.Millisecond)
			return keep
		})
		switch {
		case err != nil && c.orders.Soak:
			pause(ctx, 50*time.Millisecond) // whether it was committed, the ledger tells
		case err != nil && ctx.Err() == nil:
			fmt.Fprintln(os.Stderr, "order not taken:", err)
			os.Exit(4)
		case err == nil && keep:
			c.at(afterCommit, id.String())
		}
		pause(ctx, time.Duration(rand.IntN(60))*time.Millisecond)
	}
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
