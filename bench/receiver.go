package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

// receiver is the HTTP server that every side posts to. It reads what it gets and
// answers 200 at once, without a body.
type receiver struct {
	url    string
	server *http.Server
	served chan error

	got      atomic.Int64
	expected int64
	all      chan struct{} // closed with the expected request
	hold     chan struct{} // requests wait until it is closed; nil: they do not
}

// newReceiver starts a receiver on loopback that closes all when it has got so many
// requests.
func newReceiver(expected int) (*receiver, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("starting the receiver: %w", err)
	}
	r := &receiver{
		url:      "http://" + l.Addr().String() + "/in",
		served:   make(chan error, 1),
		expected: int64(expected),
		all:      make(chan struct{}),
	}
	r.server = &http.Server{Handler: r, ReadHeaderTimeout: time.Minute}
	go func() { r.served <- r.server.Serve(l) }()
	return r, nil
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if _, err := io.Copy(io.Discard, req.Body); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	if r.hold != nil {
		<-r.hold
	}
	w.WriteHeader(http.StatusOK)
	if r.got.Add(1) == r.expected {
		close(r.all)
	}
}

func (r *receiver) close() error {
	err := r.server.Close()
	if serveErr := <-r.served; !errors.Is(serveErr, http.ErrServerClosed) {
		err = errors.Join(err, serveErr)
	}
	return err
}

// await waits until all requests have come.
func (r *receiver) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	select {
	case <-r.all:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("the receiver got %d of %d requests: %w", r.got.Load(), r.expected, ctx.Err())
	}
}

// inFlight is how many requests each side may have under way.
const inFlight = 200

// newClient is the plain client of the sides that are not ours.
func newClient() *http.Client {
	return &http.Client{
		Timeout: 10 * time.Second,
		Transport: &http.Transport{
			MaxIdleConns:        inFlight,
			MaxIdleConnsPerHost: inFlight,
			DisableCompression:  true,
		},
	}
}

// send posts the request and reads the answer, so that its connection is used again.
func send(client *http.Client, req *http.Request) error {
	res, err := client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if _, err := io.Copy(io.Discard, io.LimitReader(res.Body, 16<<10)); err != nil {
		return err
	}
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("status %d", res.StatusCode)
	}
	return nil
}
