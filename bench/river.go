package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"

	"github.com/outhook/webhook"
)

// riverFetchCooldown is the time between two fetches of jobs. River's default of 100 ms
// allows no more than 2,000 jobs a second with 200 workers; below 5 ms little is gained
// (docs/performance.md has the sweep).
const riverFetchCooldown = 5 * time.Millisecond

// newRiver migrates River's schema in the pool's database and returns a client; with
// the zero config one that only inserts.
func newRiver(ctx context.Context, pool *pgxpool.Pool, config *river.Config) (*river.Client[pgx.Tx], error) {
	config.Logger = slog.New(slog.DiscardHandler)
	driver := riverpgxv5.New(pool)
	migrator, err := rivermigrate.New(driver, &rivermigrate.Config{Logger: config.Logger})
	if err != nil {
		return nil, fmt.Errorf("making River's migrator: %w", err)
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return nil, fmt.Errorf("migrating River: %w", err)
	}
	client, err := river.NewClient(driver, config)
	if err != nil {
		return nil, fmt.Errorf("making River's client: %w", err)
	}
	return client, nil
}

// postArgs is the job of posting an event to the receiver.
type postArgs struct {
	EventID uuid.UUID       `json:"event_id"`
	Payload json.RawMessage `json:"payload"`
}

// Kind implements river.JobArgs.
func (postArgs) Kind() string { return "post" }

// postWorker makes the same signed request that the library makes, through net/http.
type postWorker struct {
	river.WorkerDefaults[postArgs]

	client *http.Client
	secret webhook.Secret
	signer webhook.Signer
	url    string
}

func newPostWorker(url string) *postWorker {
	return &postWorker{client: newClient(), secret: webhook.NewSecret(), signer: webhook.StandardWebhooks(), url: url}
}

// Work implements river.Worker.
func (w *postWorker) Work(ctx context.Context, job *river.Job[postArgs]) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.url, bytes.NewReader(job.Args.Payload))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "bench")
	req.Header.Set("Webhook-Attempt", strconv.Itoa(job.Attempt))
	err = w.signer.Sign(ctx, req.Header, webhook.SignInput{
		ID: job.Args.EventID.String(), Time: time.Now(), Body: job.Args.Payload, Secrets: []webhook.Secret{w.secret},
	})
	if err != nil {
		return err
	}
	return send(w.client, req)
}

// insertJobs inserts n jobs that post.
func insertJobs(ctx context.Context, client *river.Client[pgx.Tx], n int) error {
	const batch = 1000
	for first := 0; first < n; first += batch {
		jobs := make([]river.InsertManyParams, 0, batch)
		for i := first; i < min(first+batch, n); i++ {
			id, err := uuid.NewV7()
			if err != nil {
				return err
			}
			jobs = append(jobs, river.InsertManyParams{Args: postArgs{EventID: id, Payload: payload(i)}})
		}
		if _, err := client.InsertManyFast(ctx, jobs); err != nil {
			return err
		}
	}
	return nil
}
