package egress_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/outhook/webhook/internal/egress"
)

// BenchmarkOverhead measures what the guard and the bounds cost on the hot path: one
// attempt on a pooled connection to loopback, with a 1 KiB payload, against a bare
// client that does the least that delivers: parse, POST with a time limit, read the
// answer. Both take turns in short slices, so that what else the machine does weighs on
// both; the metric "ratio" is the guarded time over the bare one.

var payload = bytes.Repeat([]byte(`{"a":"0123456789"}`), 57)

func benchHeader() http.Header {
	return http.Header{
		"Content-Type": {"application/json"}, "User-Agent": {"bench"}, "Webhook-Id": {"msg_p5jXN8AQM9LWM0D4loKWxJek"},
		"Webhook-Timestamp": {"1614265330"}, "Webhook-Signature": {"v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="},
		"Idempotency-Key": {"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
	}
}

func benchReceiver(b *testing.B) string {
	b.Helper()
	srv := httptest.NewServer(http.HandlerFunc(ok))
	b.Cleanup(srv.Close)
	return srv.URL + "/in?x=1"
}

// guarded returns a function that sends one event through a Client.
func guarded(b *testing.B) func(url string) error {
	b.Helper()
	c := newClient(b, loopback(), egress.TransportConfig{MaxIdlePerTarget: 64})
	return func(url string) error {
		res := c.Do(context.Background(), egress.Request{URL: url, Body: payload, Header: benchHeader()})
		return res.Err
	}
}

// bare returns a function that sends one event through an ordinary http.Client.
func bare(b *testing.B) func(url string) error {
	b.Helper()
	tr := &http.Transport{MaxIdleConnsPerHost: 64, DisableCompression: true}
	b.Cleanup(tr.CloseIdleConnections)
	c := &http.Client{Transport: tr, Timeout: 10 * time.Second}
	return func(url string) error {
		req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, url, bytes.NewReader(payload))
		if err != nil {
			return err
		}
		req.Header = benchHeader()
		resp, err := c.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		_, err = io.ReadAll(io.LimitReader(resp.Body, 1024))
		return err
	}
}

func BenchmarkOverhead(b *testing.B) {
	const slice, workers = 50, 16
	url := benchReceiver(b)
	run := func(send func(string) error) time.Duration {
		var wg sync.WaitGroup
		start := time.Now()
		for range workers {
			wg.Go(func() {
				for range slice {
					if err := send(url); err != nil {
						b.Error(err)
					}
				}
			})
		}
		wg.Wait()
		return time.Since(start)
	}
	a, z := guarded(b), bare(b)
	var ratios []float64
	var ours time.Duration
	n := 0
	for b.Loop() {
		x, y := run(a), run(z)
		ours += x
		n += slice * workers
		ratios = append(ratios, float64(x)/float64(y))
	}
	slices.Sort(ratios)
	b.ReportMetric(ratios[len(ratios)/2], "ratio")
	b.ReportMetric(float64(n)/ours.Seconds(), "requests/s")
	b.ReportMetric(0, "ns/op")
}

func BenchmarkClient(b *testing.B)     { one(b, guarded(b)) }
func BenchmarkBareClient(b *testing.B) { one(b, bare(b)) }

func one(b *testing.B, send func(string) error) {
	b.Helper()
	url := benchReceiver(b)
	b.ReportAllocs()
	for b.Loop() {
		if err := send(url); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCheckURL(b *testing.B) {
	g := newGuard(b, egress.Policy{})
	b.ReportAllocs()
	for b.Loop() {
		if _, err := g.CheckURL("https://hooks.acme.example/in?tenant=acme"); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCheckAddr(b *testing.B) {
	g := newGuard(b, egress.Policy{})
	a := netip.MustParseAddrPort("[2606:4700:4700::1111]:443")
	b.ReportAllocs()
	for b.Loop() {
		if err := g.CheckAddr(a); err != nil {
			b.Fatal(err)
		}
	}
}
