package webhook

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// refusedHeader asserts that one header is refused by name and without its value.
func refusedHeader(t *testing.T, name, value string) {
	t.Helper()
	err := checkStaticHeaders(map[string]string{name: value}, nil)
	require.ErrorIs(t, err, ErrInvalid, "%q: %q", name, value)
	var invalid *InvalidError
	require.ErrorAs(t, err, &invalid)
	assert.Equal(t, fmt.Sprintf("Headers[%q]", name), invalid.Field)
	if value != "" {
		assert.NotContains(t, err.Error(), value)
	}
}

func TestH01NamesAndValuesThatBreakARequestAreRefused(t *testing.T) {
	t.Parallel()
	for _, value := range []string{
		"sesame\r\nX-B: c", "sesame\n", "\rsesame", "ses\x00ame", "ses\tame", "sesame\x7f", "sésame", "ses\xffame", " sesame", "sesame ",
	} {
		refusedHeader(t, "X-A", value)
	}
	for _, name := range []string{"", "X A", "X-A\r\nX-B", "X-A:", ":path", "X-É", "X\x00", "X-A\t", "(X)", `X"`} {
		refusedHeader(t, name, "sesame")
	}
}

func TestH02NamesThatSteerTheConnectionOrTheMessageAreRefused(t *testing.T) {
	t.Parallel()
	names := []string{
		"Host", "Content-Length", "Transfer-Encoding", "Connection", "Expect", "Upgrade", "TE", "Trailer",
		"Proxy-Authorization", "Proxy-Connection", "Proxy-Authenticate", "Proxy-Anything", "Accept-Encoding", "Cookie",
		"Idempotency-Key", "X-Idempotency-Key",
		// Neighbours of the same kinds.
		"Keep-Alive", "Content-Type", "Content-Encoding", "Accept", "Accept-Language", "Set-Cookie", "Cookie2", "User-Agent",
		"Range", "If-None-Match", "Via", "Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Real-IP", "Origin", "Referer",
		"Sec-Fetch-Site", "Access-Control-Allow-Origin", "Traceparent", "Tracestate", "Baggage", "X-HTTP-Method-Override",
		"X-Original-URL", "Metadata", "Metadata-Flavor", "X-Aws-Ec2-Metadata-Token", "Date", "HTTP2-Settings",
		// As a CGI gateway reads them.
		"X_Forwarded_For", "Content_Length", "Transfer_Encoding",
	}
	for _, name := range names {
		for _, cased := range []string{name, strings.ToLower(name), strings.ToUpper(name)} {
			refusedHeader(t, cased, "sesame")
		}
	}
}

func TestH03SignatureHeadersAreRefusedInAnyCase(t *testing.T) {
	t.Parallel()
	for _, name := range []string{
		"webhook-id", "Webhook-Timestamp", "WEBHOOK-SIGNATURE", "webhook-attempt", "webhook-replay", "webhook_signature", "svix-signature",
		"Stripe-Signature", "x-hub-signature", "X-Hub-Signature-256", "X-Shopify-Hmac-SHA256", "X-Slack-Signature",
		"X-Slack-Request-Timestamp",
	} {
		refusedHeader(t, name, "sesame")
	}
}

func TestH03TheNamesOfTheConfiguredSignerAreRefused(t *testing.T) {
	t.Parallel()
	signer := CombineSigners(StandardWebhooksWith(StandardWebhooksConfig{Prefix: "acme-"}), StripeSigner{Header: "Acme-Sig"})
	headers := map[string]string{"ACME-ID": "a", "acme_signature": "b", "acme-sig": "c", "acme-other": "d"}
	err := checkStaticHeaders(headers, nil, signerHeaderNames(signer)...)
	require.ErrorIs(t, err, ErrInvalid)
	for _, name := range []string{"ACME-ID", "acme_signature", "acme-sig"} {
		assert.ErrorContains(t, err, name)
	}
	assert.NotContains(t, err.Error(), "acme-other")
}

func TestH03TheLibrarysValuesWin(t *testing.T) {
	t.Parallel()
	h := http.Header{"Webhook-Id": {"forged"}, "Webhook-Signature": {"v1,forged", "v1,again"}}
	require.NoError(t, StandardWebhooks().Sign(t.Context(), h, v1Input(mustSecret(t, v1Secret))))
	assert.Equal(t, http.Header{
		"Webhook-Id": {v1ID}, "Webhook-Timestamp": {"1614265330"}, "Webhook-Signature": {v1Sig},
	}, h)
}

func TestH04ThereAreAtMost20HeadersOf4KiBInAll(t *testing.T) {
	t.Parallel()
	many := func(n int) map[string]string {
		headers := make(map[string]string, n)
		for i := range n {
			headers[fmt.Sprintf("X-%d", i)] = "v"
		}
		return headers
	}
	require.NoError(t, checkStaticHeaders(many(20), nil))
	err := checkStaticHeaders(many(21), nil)
	var invalid *InvalidError
	require.ErrorAs(t, err, &invalid)
	assert.Equal(t, 20, invalid.Limit)
	assert.Equal(t, "Headers", invalid.Field)

	require.NoError(t, checkStaticHeaders(map[string]string{"X-A": strings.Repeat("a", 4096-3)}, nil))
	err = checkStaticHeaders(map[string]string{"X-A": strings.Repeat("a", 4096-2)}, nil)
	require.ErrorAs(t, err, &invalid)
	assert.Equal(t, 4096, invalid.Limit)
	assert.NotContains(t, err.Error(), "aaaa")
}

func TestOneHeaderIsNotGivenTwice(t *testing.T) {
	t.Parallel()
	for _, other := range []string{"x-api-key", "X_API_KEY"} {
		require.ErrorContains(t, checkStaticHeaders(map[string]string{"X-API-Key": "a", other: "b"}, nil), "given twice")
	}
}

func TestOrdinaryHeadersAreAllowed(t *testing.T) {
	t.Parallel()
	require.NoError(t, checkStaticHeaders(nil, nil))
	require.NoError(t, checkStaticHeaders(map[string]string{
		"Authorization": "Bearer abc", "X-API-Key": "k", "CF-Access-Client-Id": "id", "X-Tenant": "a b", "Ocp-Apim-Subscription-Key": "k",
		"X-Environment": "", "Accepted-By": "x",
	}, nil))
}

func TestAHostAllowsNamesOfHeaders(t *testing.T) {
	t.Parallel()
	allow := []string{"X-Acme-*", "Authorization"}
	require.NoError(t, checkStaticHeaders(map[string]string{"x-acme-key": "k", "AUTHORIZATION": "Bearer b", "X_Acme_Region": "eu"}, allow))
	err := checkStaticHeaders(map[string]string{"X-Acme": "hunter2", "X-Api-Key": "hunter2", "Authorization2": "hunter2"}, allow)
	for _, name := range []string{`"X-Acme"`, `"X-Api-Key"`, `"Authorization2"`} {
		require.ErrorContains(t, err, "Headers["+name+"] is a name that this service does not allow")
	}
	assert.NotContains(t, err.Error(), "hunter2")
	require.ErrorContains(t, checkStaticHeaders(map[string]string{"X-Forwarded-For": "1.1.1.1"}, []string{"X-*"}), "no endpoint may set", "allowing a family allows nothing that is refused")
	require.Error(t, checkStaticHeaders(map[string]string{"X-Api-Key": "k"}, []string{}), "a list without a name allows none")
}

func TestNamesThatAHostCannotAllow(t *testing.T) {
	t.Parallel()
	for pattern, problem := range map[string]string{
		"":            "is not an HTTP token",
		"*":           "is not an HTTP token",
		"X Key":       "is not an HTTP token",
		"Host":        "is set by the library",
		"webhook-id":  "is set by the library",
		"Connection":  "is hop-by-hop",
		"Sec-Fetch-x": "no endpoint may set",
	} {
		err := checkAllowHeaders([]string{"X-Fine", pattern})
		var invalid *InvalidError
		require.ErrorAs(t, err, &invalid, pattern)
		assert.Equal(t, "Config.AllowHeaders[1]", invalid.Field)
		assert.Contains(t, invalid.Problem, problem, pattern)
	}
}
