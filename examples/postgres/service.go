package main

import (
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outhook/webhook"
)

// service is the business: orders that are created and paid.
type service struct {
	pool  *pgxpool.Pool
	hooks *webhook.Hooks[pgx.Tx]
}

type order struct {
	ID     string `json:"id"`
	Tenant string `json:"tenant"`
	Amount int64  `json:"amount"`
}

// createEndpoint registers a customer's endpoint. A real service takes the
// tenant from the login, never from the request.
func (s *service) createEndpoint(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Tenant string `json:"tenant"`
		URL    string `json:"url"`
	}
	if !read(w, r, &in) {
		return
	}
	ep, err := s.hooks.Endpoints().Create(r.Context(), webhook.EndpointParams{
		Tenant: in.Tenant,
		URL:    in.URL,
		Types:  []string{"order.*"},
	})
	if err != nil {
		fail(w, r, err)
		return
	}
	// The one time that the secret is shown.
	write(w, r, http.StatusCreated, map[string]string{"id": ep.ID.String(), "secret": ep.Secret.Reveal()})
}

func (s *service) createOrder(w http.ResponseWriter, r *http.Request) {
	var o order
	if !read(w, r, &o) {
		return
	}
	_, err := s.pool.Exec(r.Context(), `INSERT INTO orders (id, tenant, amount) VALUES ($1, $2, $3)`, o.ID, o.Tenant, o.Amount)
	if err != nil {
		fail(w, r, err)
		return
	}
	write(w, r, http.StatusCreated, o)
}

// payOrder changes the order and enqueues the event in one transaction: both
// happen, or neither.
func (s *service) payOrder(w http.ResponseWriter, r *http.Request) {
	ctx := r.Context()
	var event webhook.EnqueueResult
	err := pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		o := order{ID: r.PathValue("id")}
		err := tx.QueryRow(ctx, `UPDATE orders SET paid = true WHERE id = $1 RETURNING tenant, amount`, o.ID).
			Scan(&o.Tenant, &o.Amount)
		if err != nil {
			return err
		}
		payload, err := json.Marshal(o)
		if err != nil {
			return err
		}
		event, err = s.hooks.Enqueue(ctx, tx, webhook.Event{
			Tenant:         o.Tenant,
			Type:           "order.paid",
			ResourceID:     o.ID,
			IdempotencyKey: o.ID + ":paid", // paying twice tells once
			Payload:        payload,
		})
		return err
	})
	if err != nil {
		fail(w, r, err)
		return
	}
	s.hooks.Wake()
	write(w, r, http.StatusOK, map[string]any{"event": event.EventID, "duplicate": event.Duplicate})
}

func read(w http.ResponseWriter, r *http.Request, into any) bool {
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<20)).Decode(into); err != nil {
		http.Error(w, "the body is not what it should be", http.StatusBadRequest)
		return false
	}
	return true
}

func write(w http.ResponseWriter, r *http.Request, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if err := json.NewEncoder(w).Encode(body); err != nil {
		slog.WarnContext(r.Context(), "answer not written", "error", err)
	}
}

// fail answers with what went wrong, as far as it is the caller's business.
func fail(w http.ResponseWriter, r *http.Request, err error) {
	switch {
	case errors.Is(err, webhook.ErrInvalid):
		http.Error(w, err.Error(), http.StatusUnprocessableEntity)
	case errors.Is(err, pgx.ErrNoRows), errors.Is(err, webhook.ErrNotFound):
		http.Error(w, "not found", http.StatusNotFound)
	default:
		slog.ErrorContext(r.Context(), "request failed", "error", err)
		http.Error(w, "something went wrong", http.StatusInternalServerError)
	}
}
