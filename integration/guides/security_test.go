package guides_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outhook/webhook"
	"github.com/outhook/webhook/integration/guides"
	"github.com/outhook/webhook/store/postgres"
)

func TestTransportsOfTheSecurityGuide(t *testing.T) {
	t.Parallel()
	own, err := guides.ForOwnReceivers()
	require.NoError(t, err)
	for url, refused := range map[string]bool{
		"https://billing.corp.internal/in": false, "https://other.internal/in": true,
		"https://10.20.3.4:8443/in": false, "https://10.21.3.4/in": true, "http://10.20.3.4/in": true,
	} {
		_, err := own.CheckURL(url)
		assert.Equal(t, refused, err != nil, "%s: %v", url, err)
	}
	proxied, err := guides.ThroughProxy("sesame")
	require.NoError(t, err)
	proxied.CloseIdleConnections()
}

func TestAWrappedTransportDelivers(t *testing.T) {
	t.Parallel()
	pool, _ := withInvoices(t)
	store := postgres.New(pool)
	require.NoError(t, store.Migrate(t.Context()))
	transport, err := guides.ForTests()
	require.NoError(t, err)
	hosts := make(chan string, 10)
	hooks, err := webhook.New(store, webhook.Config{Secrets: keys, Transport: guides.Counted(transport, func(host string) { hosts <- host })})
	require.NoError(t, err)
	t.Cleanup(hooks.Close)

	arrives(t, hooks, func(ctx context.Context) error { return guides.Pay(ctx, pool, hooks, "in_1") })

	assert.Equal(t, "127.0.0.1", <-hosts)
}
