package sqlite_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outhook/webhook"
)

// What is gone is told from what was never there by the deliveries that it left.
func TestAnEventThatIsGoneCannotBeReplayed(t *testing.T) {
	t.Parallel()
	store, db := newStore(t)
	endpoint := createEndpoint(t, store, "acme")
	event := newEvent("acme", "")
	require.NoError(t, enqueue(t.Context(), store, db, event))
	require.NoError(t, fanOutAll(t.Context(), store, newEveryone()))
	n, err := deliverAll(t.Context(), store, 10, endpoint.ID)
	require.NoError(t, err)
	require.Equal(t, 1, n)
	_, err = db.ExecContext(t.Context(), "DELETE FROM webhook_event")
	require.NoError(t, err)

	_, _, err = store.StartRun(t.Context(), webhook.StartRunParams{
		Now: time.Now(), Scope: webhook.AllTenants(), EventID: event.ID, EndpointID: endpoint.ID,
	})

	require.ErrorIs(t, err, webhook.ErrEventGone)
}
