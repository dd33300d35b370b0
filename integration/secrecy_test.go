package integration_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"database/sql"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outhook/webhook"
	"github.com/outhook/webhook/internal/pgtest"
	"github.com/outhook/webhook/store/postgres"
	"github.com/outhook/webhook/store/sqlite"
)

// P01: whoever has the database, or a backup of it, has no secret.

func TestP01ThePostgreSQLDatabaseHoldsNoSecret(t *testing.T) {
	t.Parallel()
	pool, err := pgxpool.New(t.Context(), pgtest.New(t))
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	store := postgres.New(pool)
	require.NoError(t, store.Migrate(t.Context()))
	secrets := busyUse(t, store, func(ctx context.Context, f func(pgx.Tx) error) error { return pgx.BeginFunc(ctx, pool, f) })

	rows, err := pool.Query(t.Context(), `
		SELECT quote_ident(n.nspname) || '.' || quote_ident(c.relname)
		FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE c.relkind = 'r' AND n.nspname NOT IN ('pg_catalog', 'information_schema')`)
	require.NoError(t, err)
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	var dump bytes.Buffer
	for _, table := range tables {
		rows, err := pool.Query(t.Context(), "SELECT t::text FROM "+table+" t")
		require.NoError(t, err)
		lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
		require.NoError(t, err)
		fmt.Fprintln(&dump, table, strings.Join(lines, "\n"))
	}
	assertNoSecret(t, dump.Bytes(), secrets)
}

func TestP01TheSQLiteFilesHoldNoSecret(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "app.db")
	db, err := sql.Open("sqlite", "file:"+file+"?_pragma=busy_timeout(30000)&_txlock=immediate")
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, db.Close()) })
	store := sqlite.New(db)
	require.NoError(t, store.Migrate(t.Context()))
	secrets := busyUse(t, store, func(ctx context.Context, f func(*sql.Tx) error) error {
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

	// What SQLite keeps of a row stays in its pages and its log after a change.
	names, err := filepath.Glob(file + "*")
	require.NoError(t, err)
	var dump bytes.Buffer
	for _, name := range names {
		content, err := os.ReadFile(name)
		require.NoError(t, err)
		dump.Write(content)
	}
	assertNoSecret(t, dump.Bytes(), secrets)
}

const marker = "payload-marker-51c2"

func assertNoSecret(t *testing.T, dump []byte, secrets [][]byte) {
	t.Helper()
	hexed := hex.EncodeToString([]byte(marker))
	require.True(t, bytes.Contains(dump, []byte(marker)) || bytes.Contains(dump, []byte(hexed)), "the dump shows what is stored")
	for _, prefix := range []string{"whsec_…", "whsk_…"} {
		// Hints, of the prefix and the last four characters, are there to be shown.
		dump = bytes.ReplaceAll(dump, []byte(prefix), nil)
		dump = bytes.ReplaceAll(dump, []byte(hex.EncodeToString([]byte(prefix))), nil)
	}
	for _, secret := range append(secrets, []byte("whsec_"), []byte("whsk_"), []byte("PRIVATE KEY")) {
		for _, form := range []string{
			string(secret), hex.EncodeToString(secret),
			base64.StdEncoding.EncodeToString(secret), base64.RawURLEncoding.EncodeToString(secret),
		} {
			i := bytes.Index(dump, []byte(form))
			assert.Negative(t, i, "the dump holds %.12q: %q", secret, dump[max(0, i-40):min(len(dump), max(0, i)+40)])
		}
	}
}

// busyUse uses whatever seals something, lets deliveries succeed and fail in many ways,
// and returns what must not be found.
func busyUse[Tx any](t *testing.T, store webhook.Store[Tx], inTx func(context.Context, func(Tx) error) error) [][]byte {
	t.Helper()
	transport, err := webhook.NewTransport(webhook.TransportConfig{
		AllowHTTP: true,
		Allow: []webhook.AllowRule{{
			Excerpts: true, Prefix: netip.MustParsePrefix("127.0.0.1/32"), Ports: []webhook.PortRange{{From: 1, To: 65535}},
		}},
	})
	require.NoError(t, err)
	t.Cleanup(transport.CloseIdleConnections)
	const token, header, newHeader, text = "token-9b1d4e77", "header-4f9a1c02", "header-77ab01ff", "It's a text secret 31"
	old, key := webhook.NewKey("2025"), webhook.NewKey("2026")
	hooks, err := webhook.New(store, webhook.Config{
		Authenticator: webhook.BearerAuth(token),
		Secrets:       webhook.NewKeyring(old),
		Transport:     transport,
	})
	require.NoError(t, err)
	t.Cleanup(hooks.Close)

	// It says back all that it is told, in a failure's body and in a redirect.
	var n atomic.Int32
	echo := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		told := fmt.Sprint(r.Header)
		if n.Add(1)%2 == 0 {
			w.Header().Set("Location", "/?"+r.Header.Get("Authorization")+r.Header.Get("X-Token"))
			w.WriteHeader(http.StatusFound)
			return
		}
		w.WriteHeader(http.StatusInternalServerError)
		_, _ = io.WriteString(w, told)
	}))
	t.Cleanup(echo.Close)
	fine := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, r.Header.Get("Authorization"))
	}))
	t.Cleanup(fine.Close)

	cert, certKey := clientCertificate(t)
	block, _ := pem.Decode(certKey)
	secrets := [][]byte{
		[]byte(token), []byte(header), []byte(newHeader), []byte(text), certKey, block.Bytes, block.Bytes[40:70],
		old.Bytes[:], key.Bytes[:], []byte(old.Reveal()),
	}
	textSecret, err := webhook.ParseTextSecret(text)
	require.NoError(t, err)
	s, all := hooks.Endpoints(), webhook.AllTenants()
	for _, url := range []string{fine.URL, echo.URL} {
		for _, secret := range []webhook.Secret{webhook.NewSecret(), webhook.NewSigningKey(), textSecret, {}} {
			types := []string{"a.*"}
			if secret.Equal(textSecret) {
				types = []string{"never"} // the signer cannot use it
			}
			e, err := s.Create(t.Context(), webhook.EndpointParams{
				Tenant: "acme", URL: url, Types: types, Secret: secret,
				Headers: webhook.Headers{"X-Token": header},
				TLS:     webhook.EndpointTLS{CertificatePEM: cert, KeyPEM: certKey},
			})
			require.NoError(t, err)
			rotated, err := s.RotateSecret(t.Context(), all, e.ID, webhook.RotateOptions{})
			require.NoError(t, err)
			for _, made := range []webhook.Secret{e.Secret, rotated.Secret} {
				secrets = append(secrets, []byte(made.Reveal()), made.KeyBytes())
			}
			_, err = s.Update(t.Context(), all, e.ID, webhook.EndpointUpdate{Headers: &webhook.Headers{"X-Token": newHeader}})
			require.NoError(t, err)
		}
	}
	d, err := hooks.NewDispatcher(webhook.DispatcherConfig{Retry: webhook.RetrySchedule{}})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()
	t.Cleanup(func() { cancel(); assert.NoError(t, <-ended) })

	var events []webhook.EnqueueResult
	for range 4 {
		require.NoError(t, inTx(t.Context(), func(tx Tx) error {
			res, err := hooks.Enqueue(t.Context(), tx, webhook.Event{Tenant: "acme", Type: "a.b", Payload: []byte(`"` + marker + `"`)})
			events = append(events, res)
			return err
		}))
	}
	for _, e := range events {
		require.EventuallyWithT(t, func(c *assert.CollectT) {
			list, err := store.ListDeliveries(t.Context(), webhook.ListDeliveriesParams{Scope: all, EventID: e.EventID, Limit: 100})
			require.NoError(c, err)
			require.Len(c, list.Deliveries, 6)
			for _, d := range list.Deliveries {
				require.True(c, d.State.Final(), "%s after %d attempts, %s", d.State, d.Attempts, d.LastClass)
			}
		}, 30*time.Second, 20*time.Millisecond)
	}
	moved, err := webhook.New(store, webhook.Config{Secrets: webhook.NewKeyring(key, old), Transport: transport})
	require.NoError(t, err)
	t.Cleanup(moved.Close)
	changed, err := moved.Endpoints().Reencrypt(t.Context())
	require.NoError(t, err)
	require.Equal(t, 8, changed)
	return secrets
}

func clientCertificate(t *testing.T) (certPEM, keyPEM []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "acme"}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw})
}
