package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"strconv"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outhook/webhook"
	"github.com/outhook/webhook/store/postgres"
)

const (
	payloadBytes = 1 << 10
	eventType    = "invoice.paid"
)

// payload is a JSON object of payloadBytes that tells n.
func payload(n int) json.RawMessage {
	b := make([]byte, 0, payloadBytes)
	b = append(b, `{"id":"in_`...)
	b = strconv.AppendInt(b, int64(n), 10)
	b = append(b, `","amount":4200,"currency":"EUR","note":"`...)
	b = append(b, bytes.Repeat([]byte{'x'}, payloadBytes-len(b)-2)...)
	return append(b, `"}`...)
}

func tenant(n int) string { return "tenant_" + strconv.Itoa(n) }

// event n goes to one of the tenants in turn.
func (o options) event(n int) webhook.Event {
	return webhook.Event{Tenant: tenant(n % o.endpoints), Type: eventType, Payload: payload(n)}
}

func (o options) keyedEvent(n int) webhook.Event {
	e := o.event(n)
	e.IdempotencyKey = "in_" + strconv.Itoa(n) + ":paid"
	return e
}

// newHooks migrates the library's schema and returns its handle. Requests may go to
// loopback over plain HTTP; secrets are sealed as they are by default.
func newHooks(ctx context.Context, pool *pgxpool.Pool) (*webhook.Hooks[pgx.Tx], error) {
	store := postgres.New(pool)
	if err := store.Migrate(ctx); err != nil {
		return nil, fmt.Errorf("migrating: %w", err)
	}
	transport, err := webhook.NewTransport(webhook.TransportConfig{
		Allow:            []webhook.AllowRule{{Prefix: netip.MustParsePrefix("127.0.0.1/32")}},
		AllowHTTP:        true,
		MaxIdlePerTarget: inFlight,
	})
	if err != nil {
		return nil, err
	}
	return webhook.New(store, webhook.Config{
		Secrets:   webhook.NewKeyring(webhook.NewKey("bench")),
		Transport: transport,
	})
}

// newDispatcher allows as many requests in flight as the other sides have: there is one
// host, so its cap is the process's.
func newDispatcher(hooks *webhook.Hooks[pgx.Tx]) (*webhook.Dispatcher, error) {
	return hooks.NewDispatcher(webhook.DispatcherConfig{
		MaxInFlight:            inFlight,
		MaxInFlightPerEndpoint: inFlight,
		MaxInFlightPerHost:     inFlight,
	})
}

// createEndpoints makes one endpoint per tenant, all of them on the one receiver, so on
// one host.
func (o options) createEndpoints(ctx context.Context, hooks *webhook.Hooks[pgx.Tx], url string) error {
	for n := range o.endpoints {
		_, err := hooks.Endpoints().Create(ctx, webhook.EndpointParams{
			Tenant: tenant(n), URL: url, Types: []string{"invoice.*"},
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// enqueueMany enqueues n events, spread over the tenants.
func (o options) enqueueMany(ctx context.Context, hooks *webhook.Hooks[pgx.Tx], pool *pgxpool.Pool, n int) error {
	const batch = 1000
	for first := 0; first < n; first += batch {
		events := make([]webhook.Event, 0, batch)
		for i := first; i < min(first+batch, n); i++ {
			events = append(events, o.event(i))
		}
		err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			_, err := hooks.EnqueueMany(ctx, tx, events)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}
