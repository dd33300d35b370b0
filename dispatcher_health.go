package webhook

import (
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
)

// DispatcherHealth is what a [Dispatcher] knows of itself.
type DispatcherHealth struct {
	// Running is true while Run dispatches: after it has found the database and before
	// it returns.
	Running bool
	// ID is that of the present run.
	ID uuid.UUID
	// Silence is how long ago the database last answered.
	Silence time.Duration
	// Listening is true while signals of other processes are heard; without them
	// everything is found by polling.
	Listening bool
	// Members counts the dispatchers that share the database, this one included.
	Members int
	// Saturated is true while nothing is sent since too many results wait for the
	// database.
	Saturated bool

	DispatcherGauges

	patience time.Duration // beyond which Silence means trouble
}

var errNotRunning = errors.New("webhook: the dispatcher is not running")

// Err is nil when the dispatcher does its work, as a readiness probe asks.
func (h DispatcherHealth) Err() error {
	switch {
	case !h.Running:
		return errNotRunning
	case h.Silence > h.patience:
		return fmt.Errorf("webhook: the database has not answered for %s", h.Silence.Round(time.Second))
	case h.Saturated:
		return fmt.Errorf("webhook: %d results wait for the database", h.Unrecorded)
	}
	return nil
}

// Health tells how the dispatcher itself is. It does no I/O.
func (d *Dispatcher) Health() DispatcherHealth {
	r := d.current.Load()
	if r == nil {
		return DispatcherHealth{}
	}
	h := DispatcherHealth{
		Running:          true,
		ID:               r.cluster.id,
		Listening:        r.listening.Load(),
		Members:          len(r.cluster.assigned.Load().members),
		Saturated:        r.recorder.saturated(),
		DispatcherGauges: r.gauges(),
		patience:         max(5*r.cfg.PollInterval, 10*time.Second),
	}
	if at := max(r.polledAt.Load(), r.cluster.beaten.Load()); at > 0 {
		h.Silence = max(r.d.clock.now().Sub(time.Unix(0, at)), 0)
	}
	return h
}
