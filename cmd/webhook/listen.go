package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/outhook/webhook/verify"
)

// shareFlag is a share from 0 to 1, written as 30%, 30 % or 0.3.
type shareFlag struct{ share float64 }

func (f *shareFlag) Type() string { return "share" }

func (f *shareFlag) String() string {
	return strconv.FormatFloat(f.share*100, 'f', -1, 64) + "%"
}

func (f *shareFlag) Set(text string) error {
	number, percent := strings.CutSuffix(strings.TrimSpace(text), "%")
	v, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	if percent {
		v /= 100
	}
	if err != nil || !(v >= 0 && v <= 1) {
		return fmt.Errorf("%q is not a share: 30%% or 0.3", text)
	}
	f.share = v
	return nil
}

// listener plays a receiver.
type listener struct {
	app      *app
	verifier *verify.Verifier // nil: not verified
	fail     float64
	status   int
	delay    time.Duration
	headers  bool

	mu    sync.Mutex // one request is printed at a time
	seen  int
	count int    // 0: no limit
	done  func() // called when count requests were answered
}

func (a *app) listenCommand() *cobra.Command {
	l := &listener{app: a}
	var addr string
	var secrets []string
	var fail shareFlag
	cmd := &cobra.Command{
		Use:   "listen",
		Short: "Be a receiver on this machine: verify, print, and misbehave as told",
		Long: `Runs a receiver on this machine that verifies Standard Webhooks signatures, prints what
it gets, and answers 204, or misbehaves as told. The secret is --secret, or the
environment variable WEBHOOK_SECRET; without one nothing is verified.

A service reaches it only if its Transport allows loopback and http:
AllowRule{Prefix: 127.0.0.1/32} and AllowHTTP.`,
		Example: `  webhook listen --secret whsec_… --fail 30% --status 503
  webhook endpoints create --url http://127.0.0.1:9000/in --allow 127.0.0.1/32 --allow-http`,
		Args: args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if len(secrets) == 0 && a.getenv("WEBHOOK_SECRET") != "" {
				secrets = strings.Split(a.getenv("WEBHOOK_SECRET"), ",")
			}
			if err := l.prepare(secrets, fail.share, cmd.Flags().Changed("fail")); err != nil {
				return err
			}
			return l.serve(cmd.Context(), addr)
		},
	}
	f := cmd.Flags()
	f.StringVar(&addr, "addr", "127.0.0.1:9000", "the address to listen on; port 0 takes any")
	f.StringSliceVar(&secrets, "secret", nil, "a secret to verify with; may be repeated")
	f.Var(&fail, "fail", "the share of requests that fail, by chance, with --status")
	f.IntVar(&l.status, "status", 0, "the status of failures (default 500); without --fail, of every answer")
	f.DurationVar(&l.delay, "delay", 0, "how long to wait before each answer")
	f.BoolVar(&l.headers, "headers", false, "print all headers")
	f.IntVar(&l.count, "count", 0, "end after so many requests")
	return cmd
}

func (l *listener) prepare(secrets []string, fail float64, failSet bool) error {
	switch {
	case l.status != 0 && (l.status < 200 || l.status > 599):
		return usagef("--status is %d, want 200 to 599", l.status)
	case l.delay < 0:
		return usagef("--delay is negative")
	case l.count < 0:
		return usagef("--count is negative")
	}
	l.fail = fail
	if l.status != 0 && !failSet {
		l.fail = 1
	}
	if l.status == 0 {
		l.status = http.StatusInternalServerError
	}
	if len(secrets) == 0 {
		return nil
	}
	v, err := verify.New(verify.Config{Secrets: secrets})
	if err != nil {
		return usagef("--secret: %w", err)
	}
	l.verifier = v
	return nil
}

// stopGrace is how long requests may take when the receiver is to end.
const stopGrace = 2 * time.Second

func (l *listener) serve(ctx context.Context, addr string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	l.done = cancel
	lis, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	how := "signatures are verified"
	if l.verifier == nil {
		how = "signatures are not verified: no --secret"
	}
	fmt.Fprintf(l.app.err, "Listening on http://%s, any path; %s. Stop with Ctrl-C.\n", lis.Addr(), how)
	server := &http.Server{
		Handler: l, ReadHeaderTimeout: 10 * time.Second,
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(lis) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	grace, stop := context.WithTimeout(context.WithoutCancel(ctx), stopGrace)
	defer stop()
	if err := server.Shutdown(grace); err != nil {
		server.Close()
	}
	if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// maxListened is how much of a body is read.
const maxListened = 16 << 20

// received is what is printed of a request.
type received struct {
	At       time.Time         `json:"at"`
	Method   string            `json:"method"`
	Path     string            `json:"path"`
	ID       string            `json:"webhook_id,omitempty"`
	Attempt  string            `json:"attempt,omitempty"`
	Replay   bool              `json:"replay,omitempty"`
	Verified *bool             `json:"verified,omitempty"`
	Problem  string            `json:"problem,omitempty"`
	Status   int               `json:"answered"`
	Headers  map[string]string `json:"headers,omitempty"`
	Bytes    int               `json:"bytes"`
	Body     json.RawMessage   `json:"body,omitempty"`
	Text     string            `json:"text,omitempty"`
}

// ServeHTTP answers a request and prints it.
func (l *listener) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	got := received{
		At: time.Now().UTC(), Method: r.Method, Path: r.URL.RequestURI(),
		ID: r.Header.Get("webhook-id"), Attempt: r.Header.Get("webhook-attempt"), Replay: r.Header.Get("webhook-replay") == "true",
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, maxListened))
	got.Bytes = len(body)
	if json.Valid(body) {
		got.Body = body
	} else {
		got.Text = string(body)
	}
	if l.headers {
		got.Headers = make(map[string]string)
		for name, values := range r.Header {
			got.Headers[strings.ToLower(name)] = strings.Join(values, ", ")
		}
	}
	got.Status = http.StatusNoContent
	if err == nil && l.verifier != nil {
		_, err = l.verifier.Payload(r.Header, body)
		ok := err == nil
		got.Verified = &ok
	}
	if err != nil {
		got.Problem = err.Error()
		got.Status = http.StatusUnauthorized
	} else if rand.Float64() < l.fail {
		got.Status = l.status
	}
	if l.delay > 0 {
		select {
		case <-time.After(l.delay):
		case <-r.Context().Done():
		}
	}
	w.WriteHeader(got.Status)
	l.print(&got)
}

func (l *listener) print(got *received) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seen++
	if l.app.json {
		_ = l.app.printLine(got)
	} else {
		l.pretty(got)
	}
	if l.seen == l.count {
		l.done()
	}
}

func (l *listener) pretty(got *received) {
	a := l.app
	signed := a.paint(faint, "not verified")
	switch {
	case got.Verified != nil && *got.Verified:
		signed = a.paint(green, "signature ok")
	case got.Problem != "":
		signed = a.paint(red, got.Problem)
	}
	color := green
	if got.Status >= 300 {
		color = yellow
	}
	note := ""
	if got.Replay {
		note = a.paint(cyan, " replay")
	}
	fmt.Fprintf(a.out, "%s %s %s  id %s  attempt %s%s  %s  answered %s\n",
		a.paint(faint, got.At.Local().Format("15:04:05.000")), got.Method, visible(got.Path),
		orDash(visible(got.ID)), orDash(visible(got.Attempt)), note, signed, a.paint(color, strconv.Itoa(got.Status)))
	for _, name := range sortedKeys(got.Headers) {
		fmt.Fprintf(a.out, "  %s %s\n", a.paint(faint, name+":"), visible(got.Headers[name]))
	}
	var b bytes.Buffer
	switch {
	case got.Body != nil && json.Indent(&b, got.Body, "", "  ") == nil:
		for line := range strings.SplitSeq(b.String(), "\n") {
			fmt.Fprintln(a.out, "  "+visible(strings.TrimRight(line, "\r")))
		}
	case got.Text != "":
		fmt.Fprintln(a.out, "  "+visible(got.Text))
	}
}
