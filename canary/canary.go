// Package canary sends an event through everything that customers' events go through,
// again and again, and tells when none arrives any more: the host's transaction, fan-out,
// claims, signing, the guarded transport, the network, a receiver that verifies. It is the
// one figure that goes wrong whatever breaks, including what nobody thought of.
//
// A [Sender] enqueues, in the host's process. A [Receiver] is the http.Handler of a
// synthetic endpoint: in the same process, or better elsewhere, where customers are.
//
//	receiver, err := canary.NewReceiver(canary.ReceiverConfig{Secrets: []string{secret}})
//	mux.Handle("/canary", receiver)
//
//	sender, err := canary.NewSender(canary.SenderConfig{Enqueue: func(ctx context.Context, e webhook.Event) error {
//		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { _, err := hooks.Enqueue(ctx, tx, e); return err })
//	}})
//	go sender.Run(ctx)
//
// The endpoint is one like any other: create it once, with [Endpoint], for a tenant of the
// operator's own. Wake somebody when [Receiver.Gap] is several times the interval.
package canary

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/outhook/webhook"
	"github.com/outhook/webhook/verify"
)

const (
	// EventType is the type of a canary's events.
	EventType = "webhook.canary"

	// DefaultInterval is the default of [SenderConfig.Interval].
	DefaultInterval = 10 * time.Second

	// enqueuePatience bounds one enqueuing, so that one which hangs is not the last.
	enqueuePatience = 30 * time.Second
)

// payload is what an event carries.
type payload struct {
	Number int64     `json:"number"`
	SentAt time.Time `json:"sent_at"`
}

// Endpoint returns the parameters of a canary's endpoint, for [webhook.Endpoints.Create].
// A canary that could not be delivered is not worth being delivered late: there are no
// retries.
func Endpoint(tenant, url string) webhook.EndpointParams {
	return webhook.EndpointParams{
		Tenant: tenant, URL: url, Types: []string{EventType},
		Description: "The canary: shows that events arrive.",
		Retry:       webhook.EndpointRetry{Preset: webhook.RetryPresetNone},
	}
}

// SenderConfig configures [NewSender].
type SenderConfig struct {
	// Enqueue commits the event in a transaction of its own. Required.
	Enqueue func(ctx context.Context, e webhook.Event) error

	// Interval is the time between events. Zero means 10 s; negative is refused. With
	// several processes each of them sends.
	Interval time.Duration

	// Logger gets what goes wrong. Nil means silence.
	Logger *slog.Logger

	// Tenant is whose endpoint the canary has; empty for a host without tenants.
	Tenant string
}

// Sender enqueues a canary's events. Make it with [NewSender].
type Sender struct {
	cfg SenderConfig
}

// NewSender checks the configuration; an error names the field.
func NewSender(cfg SenderConfig) (*Sender, error) {
	if cfg.Enqueue == nil {
		return nil, errors.New("canary: SenderConfig.Enqueue is nil")
	}
	if cfg.Interval < 0 {
		return nil, errors.New("canary: SenderConfig.Interval is negative")
	}
	if cfg.Interval == 0 {
		cfg.Interval = DefaultInterval
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Sender{cfg: cfg}, nil
}

// Run enqueues an event at once and then at every interval, until ctx ends. What cannot
// be enqueued is logged, and shows in the receiver's gap.
func (s *Sender) Run(ctx context.Context) {
	tick := time.NewTicker(s.cfg.Interval)
	defer tick.Stop()
	for number := int64(1); ctx.Err() == nil; number++ {
		if err := s.send(ctx, number); err != nil && ctx.Err() == nil {
			s.cfg.Logger.WarnContext(ctx, "webhook: canary not enqueued", "error", err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

func (s *Sender) send(ctx context.Context, number int64) error {
	body, err := json.Marshal(payload{Number: number, SentAt: time.Now().UTC()})
	if err != nil {
		return fmt.Errorf("write the canary's event: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, enqueuePatience)
	defer cancel()
	return s.cfg.Enqueue(ctx, webhook.Event{Tenant: s.cfg.Tenant, Type: EventType, Payload: body})
}

// ReceiverConfig configures [NewReceiver].
type ReceiverConfig struct {
	// Now is the clock. Nil means time.Now.
	Now func() time.Time

	// OnReceipt, unless nil, is called with each event that arrived and how long ago it
	// was enqueued, by the clocks of both machines.
	OnReceipt func(age time.Duration)

	// Secrets are those of the endpoint, as [verify.Config.Secrets]. Required.
	Secrets []string
}

// Receiver is the synthetic endpoint: an http.Handler that verifies and remembers. It is
// safe for concurrent use. Make it with [NewReceiver].
type Receiver struct {
	cfg     ReceiverConfig
	handler http.Handler

	mu       sync.Mutex // protects everything below
	started  time.Time
	lastSent time.Time // when the latest that arrived was enqueued; zero if none did
	received int64
	refused  int64
}

// NewReceiver checks the secrets; an error does not contain them.
func NewReceiver(cfg ReceiverConfig) (*Receiver, error) {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	r := &Receiver{cfg: cfg, started: cfg.Now()}
	v, err := verify.New(verify.Config{
		Secrets: cfg.Secrets, Now: cfg.Now,
		OnError: func(w http.ResponseWriter, _ *http.Request, _ error) {
			r.mu.Lock()
			r.refused++
			r.mu.Unlock()
			http.Error(w, "not verified", http.StatusUnauthorized)
		},
	})
	if err != nil {
		return nil, fmt.Errorf("canary: ReceiverConfig.Secrets: %w", err)
	}
	r.handler = v.Middleware(http.HandlerFunc(r.take))
	r.cfg.Secrets = nil // the verifier has them
	return r, nil
}

// ServeHTTP answers a delivery with 204 when its signature is right. A GET shows the gap,
// for whoever looks.
func (r *Receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if req.Method == http.MethodGet {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		fmt.Fprintf(w, "receipt gap %s\n", r.Gap().Round(time.Millisecond))
		return
	}
	r.handler.ServeHTTP(w, req)
}

// take takes in an event whose signature is right.
func (r *Receiver) take(w http.ResponseWriter, req *http.Request) {
	var p payload
	if err := json.NewDecoder(req.Body).Decode(&p); err != nil || p.SentAt.IsZero() {
		http.Error(w, "not a canary's event", http.StatusUnprocessableEntity)
		return
	}
	r.mu.Lock()
	r.received++
	if p.SentAt.After(r.lastSent) {
		r.lastSent = p.SentAt
	}
	r.mu.Unlock()
	if r.cfg.OnReceipt != nil {
		r.cfg.OnReceipt(max(r.cfg.Now().Sub(p.SentAt), 0))
	}
	w.WriteHeader(http.StatusNoContent)
}

// Gap is how long ago the latest event that arrived was enqueued, or, before the first,
// how long ago the receiver was made. It grows for as long as nothing arrives, and also
// while only old events do. That is the metric webhook.canary.receipt_gap.
func (r *Receiver) Gap() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	since := r.started
	if !r.lastSent.IsZero() {
		since = r.lastSent
	}
	return max(r.cfg.Now().Sub(since), 0)
}

// Counts returns how many events arrived, and how many requests were refused because
// their signature was wrong.
func (r *Receiver) Counts() (received, refused int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.received, r.refused
}

// String tells the gap and the counts.
func (r *Receiver) String() string {
	received, refused := r.Counts()
	return "canary: " + strconv.FormatInt(received, 10) + " received, " + strconv.FormatInt(refused, 10) + " refused, gap " + r.Gap().String()
}
