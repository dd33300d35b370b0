package egress_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
	"time"

	"github.com/outhook/webhook/internal/egress"
)

// The pair BenchmarkClient and BenchmarkBareClient measures what the guard and the
// bounds cost on the hot path: one attempt on a pooled connection to loopback, with a
// 1 KiB payload. The bare client does the least that delivers: parse, POST with a time
// limit, read the answer. Both share one receiver per run.

var payload = bytes.Repeat([]byte(`{"a":"0123456789"}`), 57)

func benchHeader() http.Header {
	return http.Header{
		"Content-Type": {"application/json"}, "User-Agent": {"bench"}, "Webhook-Id": {"msg_p5jXN8AQM9LWM0D4loKWxJek"},
		"Webhook-Timestamp": {"1614265330"}, "Webhook-Signature": {"v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="},
		"Idempotency-Key": {"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
	}
}

func benchReceiver(b *testing.B) *httptest.Server {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, "ok")
	}))
	b.Cleanup(srv.Close)
	return srv
}

func BenchmarkClient(b *testing.B) {
	srv := benchReceiver(b)
	c := newClient(b, loopback(), egress.TransportConfig{MaxIdlePerTarget: 64})
	url := srv.URL + "/in?x=1"
	b.ReportAllocs()
	b.SetParallelism(8)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			res := c.Do(context.Background(), egress.Request{URL: url, Body: payload, Header: benchHeader()})
			if !res.OK() {
				b.Error(res.Err)
				return
			}
		}
	})
}

func BenchmarkBareClient(b *testing.B) {
	srv := benchReceiver(b)
	tr := &http.Transport{MaxIdleConnsPerHost: 64, DisableCompression: true}
	b.Cleanup(tr.CloseIdleConnections)
	c := &http.Client{Transport: tr, Timeout: 10 * time.Second}
	url := srv.URL + "/in?x=1"
	b.ReportAllocs()
	b.SetParallelism(8)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, url, bytes.NewReader(payload))
			if err != nil {
				b.Error(err)
				return
			}
			req.Header = benchHeader()
			resp, err := c.Do(req)
			if err != nil {
				b.Error(err)
				return
			}
			_, _ = io.ReadAll(io.LimitReader(resp.Body, 1024))
			_ = resp.Body.Close()
		}
	})
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
