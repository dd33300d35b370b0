package guides

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outhook/webhook"
	"github.com/outhook/webhook/store/postgres"
	"github.com/outhook/webhook/verify"
)

// region: until-terminated

// RunUntilTerminated delivers until the process is told to stop, and then in order:
// requests in flight are finished, the rest is handed back. It answers a readiness probe
// meanwhile.
func RunUntilTerminated[Tx any](ctx context.Context, hooks *webhook.Hooks[Tx], probes *http.ServeMux) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	d, err := hooks.NewDispatcher(webhook.DispatcherConfig{
		GracePeriod: 15 * time.Second, // the default; SIGKILL should come later
	})
	if err != nil {
		return err
	}
	probes.HandleFunc("GET /ready", func(w http.ResponseWriter, _ *http.Request) {
		if err := d.Health().Err(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		}
	})
	return d.Run(ctx)
}

// end region

// region: plans

// ForPlans is a configuration that gives customers what their plan is worth. The callback
// is asked all the time, so it answers from memory.
func ForPlans(planOf func(tenant string) string) webhook.DispatcherConfig {
	return webhook.DispatcherConfig{
		MaxInFlight: 2_000, // at 300 ms a request 6,600 a second from this process
		Isolation: webhook.IsolationConfig{
			HostCaps: []webhook.HostCap{{Pattern: "*.automation.example", MaxInFlight: 200}},
		},
		TenantLimits: func(tenant string) webhook.TenantLimits {
			switch planOf(tenant) {
			case "enterprise":
				return webhook.TenantLimits{Weight: 10, MaxInFlightPerEndpoint: 150}
			case "free":
				return webhook.TenantLimits{Weight: 0.5, MaxInFlightPerEndpoint: 5, EndpointRateLimit: 10, ShedBacklog: 10_000}
			}
			return webhook.TenantLimits{}
		},
	}
}

// end region

// region: ordered

// SubscribeOrdered makes an endpoint that gets the events of each resource in their order.
func SubscribeOrdered[Tx any](ctx context.Context, hooks *webhook.Hooks[Tx], tenant, url string) (secret string, err error) {
	e, err := hooks.Endpoints().Create(ctx, webhook.EndpointParams{
		Tenant: tenant, URL: url, Types: []string{"order.*"},
		Ordering: webhook.OrderingPerResource,
	})
	return e.Secret.Reveal(), err
}

// Changed tells of an order in its new version.
func Changed(order string, version int64, status string) webhook.Event {
	return webhook.Event{
		Tenant: "acme", Type: "order.changed",
		ResourceID: order, ResourceVersion: version,
		Payload: fmt.Appendf(nil, `{"order":%q,"version":%d,"status":%q}`, order, version, status),
	}
}

// end region

// region: receiver

// NewReceiver is what a customer runs: it verifies, remembers what it has had, keeps the
// newest version of each order, and answers at once.
func NewReceiver(secret string, keep func(order string, version int64, status string)) http.Handler {
	var mu sync.Mutex
	newest := make(map[string]int64) // a database's table, in earnest
	handle := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var in struct {
			Order   string `json:"order"`
			Version int64  `json:"version"`
			Status  string `json:"status"`
		}
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
			http.Error(w, "not JSON", http.StatusBadRequest)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		if in.Version > newest[in.Order] { // an older one, or the same again, is no news
			newest[in.Order] = in.Version
			keep(in.Order, in.Version, in.Status)
		}
		w.WriteHeader(http.StatusNoContent)
	})
	return verify.Middleware(secret)(handle)
}

// end region

// region: pooler

// OpenBehindPooler makes the hooks of a service whose pool leads to a pooler in transaction
// mode. The direct address is for notifications alone; empty does without them.
func OpenBehindPooler(ctx context.Context, pooled, direct string, keys *webhook.Keyring) (*pgxpool.Pool, *webhook.Hooks[pgx.Tx], error) {
	config, err := pgxpool.ParseConfig(pooled)
	if err != nil {
		return nil, nil, err
	}
	config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec // nothing is prepared by name
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, nil, err
	}
	var storeConfig postgres.Config
	if direct != "" {
		if storeConfig.ListenConn, err = pgx.ParseConfig(direct); err != nil {
			return nil, nil, err
		}
	}
	store, err := postgres.NewWithConfig(pool, storeConfig)
	if err != nil {
		return nil, nil, err
	}
	hooks, err := webhook.New(store, webhook.Config{Secrets: keys})
	return pool, hooks, err
}

// end region
