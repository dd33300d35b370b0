package webhook

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The vectors V1 to V12: published by the Standard Webhooks and Svix libraries, or
// computed with Python's hmac and confirmed by openssl.
const (
	v1Secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	v1ID     = "msg_p5jXN8AQM9LWM0D4loKWxJek"
	v1Time   = 1614265330
	v1Body   = `{"test": 2432232314}`
	v1Sig    = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="

	v5Secret = "whsk_6Xb/dCcHpPea21PS1N9VY/NZW723CEc77N4rJCubMbfVKIDij2HKpMKkioLlX0dRqSKJp4AJ6p9lMicMFs6Kvg=="
	v5Public = "whpk_1SiA4o9hyqTCpIqC5V9HUakiiaeACeqfZTInDBbOir4="
	v5Sig    = "v1a,hnO3f9T8Ytu9HwrXslvumlUpqtNVqkhqw/enGzPCXe5BdqzCInXqYXFymVJaA7AZdpXwVLPo3mNl8EM+m7TBAg=="

	v9Secret = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
	v9Sig    = "v1,78nXHjpFP0tVJQW5D0SBwmVyyW87BV/rL6MgfM/Bw44="
)

func mustSecret(tb testing.TB, s string) Secret {
	tb.Helper()
	secret, err := ParseSecret(s)
	require.NoError(tb, err)
	return secret
}

func signHeaders(tb testing.TB, s Signer, in SignInput) http.Header {
	tb.Helper()
	h := make(http.Header)
	require.NoError(tb, s.Sign(tb.Context(), h, in))
	return h
}

func v1Input(secrets ...Secret) SignInput {
	return SignInput{ID: v1ID, Time: time.Unix(v1Time, 0), Body: []byte(v1Body), Secrets: secrets}
}

func bytes00toFF() []byte {
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	return all
}

func TestStandardWebhooksSignsThePublishedVectors(t *testing.T) {
	t.Parallel()
	const (
		v11Body = `{"type":"contact.created","timestamp":"2022-11-03T20:26:10.344522Z","data":{"id":"1f81eb52-5198-4599-803e-771906343485"}}`
		key24   = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX"
		key32   = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
		key64   = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8gISIjJCUmJygpKissLS4vMDEyMzQ1Njc4OTo7PD0+Pw=="
	)
	a := func(n int) []byte { return bytes.Repeat([]byte("a"), n) }
	tests := []struct {
		name   string
		secret string
		id     string
		ts     int64
		body   []byte
		want   string
	}{
		{"S01/V1", v1Secret, v1ID, v1Time, []byte(v1Body), v1Sig},
		{"S01/V2", v1Secret, v1ID, v1Time, a(1048576), "v1,txpEUxqWZJ5nteTnymUVa+7C4NHpBeXJ6CsBAW0c3/A="},
		{"S01/V3", v1Secret, v1ID, v1Time, a(262144), "v1,Mw4Pe2WgApuT7NSqnSq0PQPV9gbLdggCl9B865x5Xh0="},
		{"S01/V4", v1Secret, v1ID, v1Time, a(262143), "v1,NTItnqyWMoFhk2Bbe5V/BMdcFRWgcSQaTgqLHX7FC7c="},
		{"S02/V5", v5Secret, v1ID, v1Time, []byte(v1Body), v5Sig},
		{"S03/V6", v1Secret, v1ID, v1Time, nil, "v1,v48jdbgvh29KJz2Qc+ghw8G6vG3nAKnujWBg8oM/62A="},
		{"S03/V7", v1Secret, v1ID, v1Time, []byte("{\"name\":\"Zoë ☃\",\"n\":1}\n"), "v1,/+1m5vC9T9GTfQCTm9gSUeYU8fWRGajSwpBuhgC2gg8="},
		{"S03/V8", v1Secret, v1ID, v1Time, bytes00toFF(), "v1,sEcZ042G8Crqgxbybb3y0eDxQR3TcfYsk11I1XULhSI="},
		{"S03/V9", v9Secret, v1ID, v1Time, []byte(v1Body), v9Sig},
		{"S03/V11", v1Secret, "msg_2KWPBgLlAfxdpx2AI54pPJ85f4W", 1674087231, []byte(v11Body), "v1,ARw42xaAApl/nxRo+iPGYwSaMQaOwMo2eyH5JBRA+bQ="},
		{"S03/V12 24 bytes", key24, "msg_test", 1700000000, []byte(`{"a":1}`), "v1,62tJyCcvDG/tDZ/aXrEXJ/VH1OEQsfMfdvl2zC6lKQM="},
		{"S03/V12 32 bytes", key32, "msg_test", 1700000000, []byte(`{"a":1}`), "v1,zM805ub/HuNgRQquf7DOmQTAXz4paUhBB8MyV0LLA4M="},
		{"S03/V12 64 bytes", key64, "msg_test", 1700000000, []byte(`{"a":1}`), "v1,bRGeRJ9Yf4IOoPDR0VhftiVJApuS8xEOKfkHDoI/HHk="},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			secret := mustSecret(t, tt.secret)
			h := signHeaders(t, StandardWebhooks(), SignInput{
				ID: tt.id, Time: time.Unix(tt.ts, 0), Body: tt.body, Secrets: []Secret{secret},
			})
			assert.Equal(t, tt.want, h.Get("webhook-signature"))
			assert.Equal(t, tt.id, h.Get("webhook-id"))
			assert.Equal(t, fmt.Sprint(tt.ts), h.Get("webhook-timestamp"))
			assert.Len(t, h, 3)
		})
	}
}

func TestS04RotationSignsWithEachActiveSecretTheCurrentOneFirst(t *testing.T) {
	t.Parallel()
	h := signHeaders(t, StandardWebhooks(), v1Input(mustSecret(t, v9Secret), mustSecret(t, v1Secret)))
	assert.Equal(t, []string{v9Sig + " " + v1Sig}, h["Webhook-Signature"], "V10: one header, one space, none at the end")
}

func TestS04ManyRotationsAndBothKindsOfKeySignTogether(t *testing.T) {
	t.Parallel()
	secrets := []Secret{mustSecret(t, v5Secret), mustSecret(t, v9Secret), mustSecret(t, v1Secret)}
	want := []string{v5Sig, v9Sig, v1Sig}
	for range 20 {
		secrets = append(secrets, NewSecret())
	}
	h := signHeaders(t, StandardWebhooks(), v1Input(secrets...))
	entries := strings.Split(h.Get("webhook-signature"), " ")
	assert.Equal(t, want, entries[:3])
	assert.Len(t, entries, 23)
}

func TestS05OnlyTheCurrentSecretSignsAfterTheOverlap(t *testing.T) {
	t.Parallel()
	h := signHeaders(t, StandardWebhooks(), v1Input(mustSecret(t, v9Secret)))
	assert.Equal(t, v9Sig, h.Get("webhook-signature"))
}

func TestS07ARetryHasTheSameIDAndBodyAndAFreshSignature(t *testing.T) {
	t.Parallel()
	in := v1Input(mustSecret(t, v1Secret))
	body := bytes.Clone(in.Body)
	first := signHeaders(t, StandardWebhooks(), in)
	in.Time = in.Time.Add(5 * time.Second)
	second := signHeaders(t, StandardWebhooks(), in)

	assert.Equal(t, first.Get("webhook-id"), second.Get("webhook-id"))
	assert.NotEqual(t, first.Get("webhook-timestamp"), second.Get("webhook-timestamp"))
	assert.NotEqual(t, first.Get("webhook-signature"), second.Get("webhook-signature"))
	assert.Equal(t, body, in.Body)
}

func TestS08AnIDThatWouldMakeTheSignedContentAmbiguousIsRefused(t *testing.T) {
	t.Parallel()
	for _, id := range []string{"", "a.b", ".", "a\nb", "a\r", "a b", "\x00", "a\x7f", "é"} {
		in := v1Input(NewSecret())
		in.ID = id
		h := make(http.Header)
		require.Error(t, StandardWebhooks().Sign(t.Context(), h, in), "%q", id)
		assert.Empty(t, h, "%q", id)
	}
}

func TestS09AnyBodyBytesAreSignedAsTheyAre(t *testing.T) {
	t.Parallel()
	body := []byte("{\"a\" : 1,\n \"a\":\"é\\/\", \"n\":12345678901234567890}")
	in := v1Input(mustSecret(t, v5Secret))
	in.Body = body
	h := signHeaders(t, StandardWebhooks(), in)
	sig, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(h.Get("webhook-signature"), "v1a,"))
	require.NoError(t, err)
	public, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(v5Public, "whpk_"))
	require.NoError(t, err)
	signed := append([]byte(fmt.Sprintf("%s.%d.", v1ID, v1Time)), body...)
	assert.True(t, ed25519.Verify(public, signed, sig))
}

func TestS11NoFormatLeavesARequestUnsigned(t *testing.T) {
	t.Parallel()
	text, err := ParseTextSecret("It's a Secret to Everybody")
	require.NoError(t, err)
	signers := map[string]Signer{
		"standard": StandardWebhooks(), "stripe": StripeSigner{}, "github": GitHubSigner{},
		"shopify": ShopifySigner{}, "slack": SlackSigner{}, "combined": CombineSigners(StandardWebhooks(), GitHubSigner{}),
	}
	unusable := map[string][]Secret{
		"standard": {text, {}}, "stripe": {NewSigningKey()}, "github": {NewSigningKey()},
		"shopify": {NewSigningKey()}, "slack": {NewSigningKey(), {}}, "combined": {text},
	}
	for name, s := range signers {
		for _, secrets := range [][]Secret{nil, {{}}, unusable[name]} {
			h := make(http.Header)
			err := s.Sign(t.Context(), h, v1Input(secrets...))
			require.ErrorIs(t, err, ErrNoSigningSecret, name)
			assert.Empty(t, h, name)
		}
	}
	require.Error(t, CombineSigners().Sign(t.Context(), http.Header{}, v1Input(text)))
}

func TestFormatsOfOtherSenders(t *testing.T) {
	t.Parallel()
	slackBody := "token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V" +
		"&channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text=" +
		"&response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN" +
		"&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c"
	const stripeBody = `{"id":"evt_test_webhook","object":"event"}`
	const stripeSig = "t=1700000000,v1=d95c6b7477fbd7e9f90b1b0ef5f9c7ac25abca5382460e0d988c2b2a5b71b990"
	tests := []struct {
		name    string
		signer  Signer
		secrets []Secret
		ts      int64
		body    string
		want    map[string]string
	}{
		{
			"Stripe",
			StripeSigner{},
			[]Secret{textSecret("whsec_test_secret")},
			1700000000, stripeBody,
			map[string]string{"Stripe-Signature": stripeSig},
		},
		{
			"Stripe rotation",
			StripeSigner{},
			[]Secret{textSecret("whsec_test_secret"), NewSigningKey(), textSecret("whsec_old_secret")},
			1700000000, stripeBody,
			map[string]string{"Stripe-Signature": stripeSig + ",v1=e016b64cc4263f90e0336f3975e8d4ac9cc185935edc3ebdd405db64ad0bb1c5"},
		},
		{
			"Stripe header",
			StripeSigner{Header: "acme-signature"},
			[]Secret{textSecret("whsec_test_secret")},
			1700000000, stripeBody,
			map[string]string{"Acme-Signature": stripeSig},
		},
		{
			"GitHub",
			GitHubSigner{},
			[]Secret{textSecret("It's a Secret to Everybody"), textSecret("an old one")},
			0, "Hello, World!",
			map[string]string{"X-Hub-Signature-256": "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"},
		},
		{
			"Shopify",
			ShopifySigner{},
			[]Secret{textSecret("hush")},
			0, `{"foo":"bar"}`,
			map[string]string{"X-Shopify-Hmac-Sha256": "kxsFTgDOlihbs91PqCBFjROWdTQGkFF0NzCvVuvOLsU="},
		},
		{
			"Slack",
			SlackSigner{},
			[]Secret{textSecret("8f742231b10e8888abcd99yyyzzz85a5")},
			1531420618, slackBody,
			map[string]string{
				"X-Slack-Signature":         "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503",
				"X-Slack-Request-Timestamp": "1531420618",
			},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h := signHeaders(t, tt.signer, SignInput{
				ID: "msg_1", Time: time.Unix(tt.ts, 0), Body: []byte(tt.body), Secrets: tt.secrets,
			})
			got := make(map[string]string)
			for name, values := range h {
				require.Len(t, values, 1)
				got[name] = values[0]
			}
			assert.Equal(t, tt.want, got)
		})
	}
}

func TestAStripeKeyIsTheWholeTextOfAStandardSecret(t *testing.T) {
	t.Parallel()
	standard := signHeaders(t, StripeSigner{}, v1Input(mustSecret(t, v1Secret)))
	text := signHeaders(t, StripeSigner{}, v1Input(textSecret(v1Secret)))
	assert.Equal(t, text, standard)
}

func TestHeaderNamesOfStandardWebhooksTakeAPrefix(t *testing.T) {
	t.Parallel()
	h := signHeaders(t, StandardWebhooksWith(StandardWebhooksConfig{Prefix: "svix-"}), v1Input(mustSecret(t, v1Secret)))
	assert.Equal(t, http.Header{
		"Svix-Id": {v1ID}, "Svix-Timestamp": {"1614265330"}, "Svix-Signature": {v1Sig},
	}, h)
}

func TestCombinedSignersAllSign(t *testing.T) {
	t.Parallel()
	s := CombineSigners(StandardWebhooks(), StandardWebhooksWith(StandardWebhooksConfig{Prefix: "svix-"}), SlackSigner{})
	require.NoError(t, validateSigner(s))
	h := signHeaders(t, s, v1Input(mustSecret(t, v1Secret)))
	assert.Equal(t, v1Sig, h.Get("webhook-signature"))
	assert.Equal(t, v1Sig, h.Get("svix-signature"))
	assert.NotEmpty(t, h.Get("x-slack-signature"))
	assert.ElementsMatch(t, []string{
		"Webhook-Id", "Webhook-Timestamp", "Webhook-Signature", "Svix-Id", "Svix-Timestamp", "Svix-Signature",
		"X-Slack-Signature", "X-Slack-Request-Timestamp",
	}, signerHeaderNames(s))
}

type failingSigner struct{}

func (failingSigner) Sign(context.Context, http.Header, SignInput) error { return errors.New("no") }

func TestSignersReportWhatIsWrongWithThem(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]Signer{
		"prefix":    StandardWebhooksWith(StandardWebhooksConfig{Prefix: "web hook-"}),
		"line":      StripeSigner{Header: "a\r\nb"},
		"github":    GitHubSigner{Header: "é"},
		"shopify":   ShopifySigner{Header: ":"},
		"slack":     SlackSigner{TimestampHeader: "a b"},
		"empty":     CombineSigners(),
		"nil":       CombineSigners(nil),
		"nested":    CombineSigners(StripeSigner{Header: "a b"}),
		"overwrite": CombineSigners(StripeSigner{Header: "x-slack-signature"}, SlackSigner{}),
		"twice":     CombineSigners(StandardWebhooks(), CombineSigners(StandardWebhooks())),
	} {
		require.Error(t, validateSigner(s), name)
	}
	require.NoError(t, validateSigner(failingSigner{}), "a signer that cannot tell is taken as it is")
	require.NoError(t, validateSigner(StandardWebhooks()))
	require.Error(t, CombineSigners(StandardWebhooks(), failingSigner{}).Sign(t.Context(), http.Header{}, v1Input(NewSecret())))
}

func TestSignersAreSafeForConcurrentUse(t *testing.T) {
	t.Parallel()
	s := CombineSigners(StandardWebhooks(), StripeSigner{}, SlackSigner{}, ShopifySigner{})
	in := v1Input(mustSecret(t, v9Secret), mustSecret(t, v5Secret), mustSecret(t, v1Secret))
	want := signHeaders(t, s, in)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 100 {
				h := make(http.Header)
				if assert.NoError(t, s.Sign(t.Context(), h, in)) {
					assert.Equal(t, want, h)
				}
			}
		})
	}
	wg.Wait()
}

func TestASignInputDoesNotPrintItsBody(t *testing.T) {
	t.Parallel()
	in := v1Input(mustSecret(t, v1Secret))
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x"} {
		out := fmt.Sprintf(verb, in)
		assert.NotContains(t, out, "2432232314", verb)
		assert.NotContains(t, out, "MfKQ", verb)
	}
}

func BenchmarkStandardWebhooks(b *testing.B) {
	body := bytes.Repeat([]byte("a"), 1024)
	symmetric, asymmetric := mustSecret(b, v1Secret), mustSecret(b, v5Secret)
	for name, secrets := range map[string][]Secret{
		"v1": {symmetric}, "v1 rotating": {symmetric, mustSecret(b, v9Secret)}, "v1a": {asymmetric},
	} {
		b.Run(name, func(b *testing.B) {
			s, in := StandardWebhooks(), SignInput{ID: v1ID, Time: time.Unix(v1Time, 0), Body: body, Secrets: secrets}
			h := make(http.Header)
			b.ReportAllocs()
			b.SetBytes(int64(len(body)))
			for b.Loop() {
				if err := s.Sign(b.Context(), h, in); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
