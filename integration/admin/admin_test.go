package admin_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite"

	"github.com/outhook/webhook"
	"github.com/outhook/webhook/admin"
	"github.com/outhook/webhook/internal/pgtest"
	"github.com/outhook/webhook/store/postgres"
	"github.com/outhook/webhook/store/sqlite"
)

func TestACustomersDayOnPostgreSQL(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	store := postgres.New(pool)
	require.NoError(t, store.Migrate(t.Context()))
	customersDay(t, store, func(ctx context.Context, f func(pgx.Tx) error) error { return pgx.BeginFunc(ctx, pool, f) })
}

func TestACustomersDayOnSQLite(t *testing.T) {
	t.Parallel()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "app.db")+"?_pragma=busy_timeout(30000)&_txlock=immediate")
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, db.Close()) })
	store := sqlite.New(db)
	require.NoError(t, store.Migrate(t.Context()))
	customersDay(t, store, func(ctx context.Context, f func(*sql.Tx) error) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		if err := f(tx); err != nil {
			_ = tx.Rollback()
			return err
		}
		return tx.Commit()
	})
}

// failing is a Transport whose receivers answer 500.
type failing struct{}

func (failing) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{
		StatusCode: http.StatusInternalServerError, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("no")), Request: r,
	}, nil
}

// customersDay makes an endpoint, sends an event that dies, finds out why, mends the URL,
// replays and rotates, all over HTTP; and tries the same with another tenant's login.
func customersDay[Tx any](t *testing.T, store webhook.Store[Tx], inTx func(context.Context, func(Tx) error) error) {
	t.Helper()
	hooks, err := webhook.New(store, webhook.Config{Secrets: webhook.NewKeyring(webhook.NewKey("1")), Transport: failing{}})
	require.NoError(t, err)
	t.Cleanup(hooks.Close)
	portal, err := admin.NewPortal(hooks, admin.PortalConfig{
		Authorize: func(r *http.Request) (admin.Member, error) {
			return admin.Member{Name: "somebody", Tenant: r.Header.Get("Who")}, nil
		},
		Enqueue: func(ctx context.Context, e webhook.Event) (res webhook.EnqueueResult, err error) {
			err = inTx(ctx, func(tx Tx) error {
				res, err = hooks.Enqueue(ctx, tx, e)
				return err
			})
			return res, err
		},
	})
	require.NoError(t, err)
	ask := func(status int, who, method, target string, body any, headers ...string) map[string]any {
		t.Helper()
		var reader io.Reader
		if body != nil {
			doc, err := json.Marshal(body)
			require.NoError(t, err)
			reader = strings.NewReader(string(doc))
		}
		r := httptest.NewRequestWithContext(t.Context(), method, target, reader)
		r.Header.Set("Who", who)
		r.Header.Set("Content-Type", "application/json")
		for i := 0; i+1 < len(headers); i += 2 {
			r.Header.Set(headers[i], headers[i+1])
		}
		w := httptest.NewRecorder()
		portal.ServeHTTP(w, r)
		require.Equal(t, status, w.Code, "%s %s: %s", method, target, w.Body)
		var got map[string]any
		if w.Body.Len() > 0 {
			require.NoError(t, json.Unmarshal(w.Body.Bytes(), &got))
			got["etag"] = w.Header().Get("ETag")
		}
		return got
	}
	type m = map[string]any

	params := m{"url": "https://old.example/in", "types": []string{"invoice.*"}, "retry": m{"preset": "none"}}
	endpoint := ask(201, "acme", "POST", "/api/endpoints", params, "Idempotency-Key", "k")
	assert.Equal(t, endpoint["id"], ask(200, "acme", "POST", "/api/endpoints", params, "Idempotency-Key", "k")["id"])
	id, _ := endpoint["id"].(string)
	event := ask(202, "acme", "POST", "/api/events", m{"type": "invoice.paid", "resource_id": "in_9", "payload": m{"n": 1}})
	eventID, _ := event["event_id"].(string)

	d, err := hooks.NewDispatcher(webhook.DispatcherConfig{PollInterval: 20 * time.Millisecond})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- d.Run(ctx) }()
	list := "/api/deliveries?state=dead&event_id=" + eventID
	var dead []any
	require.Eventually(t, func() bool {
		dead, _ = ask(200, "acme", "GET", list, nil)["items"].([]any)
		return len(dead) == 1
	}, 30*time.Second, 20*time.Millisecond)
	stop()
	require.NoError(t, <-done)

	delivery, _ := dead[0].(m)["id"].(string)
	read := ask(200, "acme", "GET", "/api/deliveries/"+delivery, nil)
	attempt, _ := read["attempts"].([]any)[0].(m)
	assert.InDelta(t, 500, attempt["status"], 0)
	assert.Equal(t, "no", attempt["excerpt"])

	updated := ask(200, "acme", "PATCH", "/api/endpoints/"+id, m{"url": "https://new.example/in"}, "If-Match", endpoint["etag"].(string))
	ask(412, "acme", "PATCH", "/api/endpoints/"+id, m{"url": "https://lost.example/in"}, "If-Match", endpoint["etag"].(string))
	assert.Equal(t, "https://new.example/in", updated["url"])
	assert.InDelta(t, 1, ask(200, "acme", "POST", "/api/replays/dry-run", m{"endpoint_id": id})["matched"], 0)
	replay := ask(201, "acme", "POST", "/api/replays", m{"endpoint_id": id})
	replayID, _ := replay["id"].(string)
	assert.Equal(t, "running", ask(200, "acme", "GET", "/api/replays/"+replayID, nil)["state"])
	rotated := ask(200, "acme", "POST", "/api/endpoints/"+id+"/rotate-secret", nil)
	assert.Len(t, rotated["secrets"], 2)
	assert.NotEqual(t, endpoint["secret"], rotated["secret"])
	ask(200, "acme", "GET", "/api/endpoints/"+id+"/health", nil)
	ask(200, "acme", "GET", "/api/endpoints/"+id+"/stats", nil)
	ask(200, "acme", "GET", "/api/overview", nil)

	for _, path := range []string{"endpoints/" + id, "endpoints/" + id + "/health", "endpoints/" + id + "/stats", "deliveries/" + delivery, "events/" + eventID, "replays/" + replayID} {
		ask(404, "globex", "GET", "/api/"+path, nil)
	}
	for _, path := range []string{"endpoints/" + id + "/pause", "endpoints/" + id + "/rotate-secret", "deliveries/" + delivery + "/retry", "replays/" + replayID + "/cancel"} {
		ask(404, "globex", "POST", "/api/"+path, nil)
	}
	ask(404, "globex", "DELETE", "/api/endpoints/"+id, nil)
	for _, path := range []string{"endpoints", "deliveries?event_id=" + eventID, "replays?endpoint_id=" + id, "endpoint-health", "notices"} {
		assert.Empty(t, ask(200, "globex", "GET", "/api/"+path, nil)["items"], path)
	}
	assert.Equal(t, "cancelled", ask(200, "acme", "POST", "/api/replays/"+replayID+"/cancel", nil)["state"])
	ask(204, "acme", "DELETE", "/api/endpoints/"+id, nil)
	ask(404, "acme", "GET", "/api/endpoints/"+id, nil)
}
