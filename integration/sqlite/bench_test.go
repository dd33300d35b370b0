package sqlite_test

import (
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/outhook/webhook/store/sqlite"
)

// benchmarkRows are how many rows go through each iteration of the benchmarks of
// batches.
const benchmarkRows = 1000

func benchmarkStore(b *testing.B) (*sqlite.Store, func(), []uuid.UUID) {
	b.Helper()
	store, db := newStore(b)
	var endpoints []uuid.UUID
	for range 10 {
		endpoints = append(endpoints, createEndpoint(b, store, "acme").ID)
	}
	m := newEveryone()
	// fill makes benchmarkRows deliveries of benchmarkRows/10 events.
	fill := func() {
		require.NoError(b, enqueue(b.Context(), store, db, newEvents(benchmarkRows/10, "acme")...))
		require.NoError(b, fanOutAll(b.Context(), store, m))
	}
	return store, fill, endpoints
}

func reportRows(b *testing.B, rowsPerOp int) {
	b.ReportMetric(float64(rowsPerOp)*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
}

func BenchmarkEnqueueOnePerTransaction(b *testing.B) {
	store, db := newStore(b)
	for b.Loop() {
		require.NoError(b, enqueue(b.Context(), store, db, newEvent("acme", "")))
	}
	reportRows(b, 1)
}

func BenchmarkEnqueueMany(b *testing.B) {
	store, db := newStore(b)
	for b.Loop() {
		require.NoError(b, enqueue(b.Context(), store, db, newEvents(benchmarkRows, "acme")...))
	}
	reportRows(b, benchmarkRows)
}

func BenchmarkFanOut(b *testing.B) {
	store, db := newStore(b)
	for range 10 {
		createEndpoint(b, store, "acme")
	}
	m := newEveryone()
	for b.Loop() {
		b.StopTimer()
		require.NoError(b, enqueue(b.Context(), store, db, newEvents(benchmarkRows/10, "acme")...))
		b.StartTimer()
		require.NoError(b, fanOutAll(b.Context(), store, m))
	}
	reportRows(b, benchmarkRows)
}

func BenchmarkFanOutOneEndpoint(b *testing.B) {
	store, db := newStore(b)
	createEndpoint(b, store, "acme")
	m := newEveryone()
	for b.Loop() {
		b.StopTimer()
		require.NoError(b, enqueue(b.Context(), store, db, newEvents(benchmarkRows, "acme")...))
		b.StartTimer()
		require.NoError(b, fanOutAll(b.Context(), store, m))
	}
	reportRows(b, benchmarkRows)
}

func BenchmarkClaim(b *testing.B) {
	store, fill, endpoints := benchmarkStore(b)
	for b.Loop() {
		b.StopTimer()
		fill()
		b.StartTimer()
		claimed, token, err := claimFrom(b.Context(), store, benchmarkRows/10, endpoints...)
		require.NoError(b, err)
		require.Len(b, claimed, benchmarkRows)
		b.StopTimer()
		require.NoError(b, record(b.Context(), store, claimed, token))
		b.StartTimer()
	}
	reportRows(b, benchmarkRows)
}

func BenchmarkRecord(b *testing.B) {
	store, fill, endpoints := benchmarkStore(b)
	for b.Loop() {
		b.StopTimer()
		fill()
		claimed, token, err := claimFrom(b.Context(), store, benchmarkRows/10, endpoints...)
		require.NoError(b, err)
		require.Len(b, claimed, benchmarkRows)
		b.StartTimer()
		require.NoError(b, record(b.Context(), store, claimed, token))
	}
	reportRows(b, benchmarkRows)
}
