package storetest_test

import (
	"context"
	"testing"

	"github.com/outhook/webhook"
	"github.com/outhook/webhook/store/storetest"
	"github.com/outhook/webhook/webhooktest"
)

// region: harness

// memory is the in-memory store as a database of the suite.
type memory struct{ store *webhooktest.Store }

func openMemory(testing.TB) storetest.Database[*webhooktest.Tx] {
	return memory{webhooktest.NewStore()}
}

func (m memory) Connect(testing.TB) webhook.Store[*webhooktest.Tx] { return m.store }

func (m memory) Begin(context.Context) (*webhooktest.Tx, error) { return m.store.Begin(), nil }

func (m memory) Commit(_ context.Context, tx *webhooktest.Tx) error { return tx.Commit() }

func (m memory) Rollback(_ context.Context, tx *webhooktest.Tx) error { return tx.Rollback() }

func TestTheInMemoryStoreConforms(t *testing.T) {
	t.Parallel()
	storetest.Run(t, storetest.Harness[*webhooktest.Tx]{Open: openMemory, Notifications: true})
}

// end region
