package verify

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The published vectors, as in the signer's tests.
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

func at(seconds int64) func() time.Time {
	return func() time.Time { return time.Unix(seconds, 0) }
}

// v1Headers are the headers of vector V1 with another signature.
func v1Headers(signature string) http.Header {
	h := make(http.Header)
	h.Set("webhook-id", v1ID)
	h.Set("webhook-timestamp", strconv.Itoa(v1Time))
	h.Set("webhook-signature", signature)
	return h
}

func newVerifier(tb testing.TB, cfg Config) *Verifier {
	tb.Helper()
	if cfg.Now == nil {
		cfg.Now = at(v1Time)
	}
	if cfg.Secrets == nil {
		cfg.Secrets = []string{v1Secret}
	}
	v, err := New(cfg)
	require.NoError(tb, err)
	return v
}

func TestThePublishedVectorsVerify(t *testing.T) {
	t.Parallel()
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	const (
		v11Body = `{"type":"contact.created","timestamp":"2022-11-03T20:26:10.344522Z","data":{"id":"1f81eb52-5198-4599-803e-771906343485"}}`
		key24   = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX"
		key32   = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
		key64   = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8gISIjJCUmJygpKissLS4vMDEyMzQ1Njc4OTo7PD0+Pw=="
	)
	a := func(n int) []byte { return bytes.Repeat([]byte("a"), n) }
	for _, tt := range []struct {
		name, secret, id string
		ts               int64
		body             []byte
		sig              string
	}{
		{"V1", v1Secret, v1ID, v1Time, []byte(v1Body), v1Sig},
		{"V1 without prefix", strings.TrimPrefix(v1Secret, "whsec_"), v1ID, v1Time, []byte(v1Body), v1Sig},
		{"V2", v1Secret, v1ID, v1Time, a(1048576), "v1,txpEUxqWZJ5nteTnymUVa+7C4NHpBeXJ6CsBAW0c3/A="},
		{"V3", v1Secret, v1ID, v1Time, a(262144), "v1,Mw4Pe2WgApuT7NSqnSq0PQPV9gbLdggCl9B865x5Xh0="},
		{"V4", v1Secret, v1ID, v1Time, a(262143), "v1,NTItnqyWMoFhk2Bbe5V/BMdcFRWgcSQaTgqLHX7FC7c="},
		{"V5", v5Public, v1ID, v1Time, []byte(v1Body), v5Sig},
		{"V6", v1Secret, v1ID, v1Time, nil, "v1,v48jdbgvh29KJz2Qc+ghw8G6vG3nAKnujWBg8oM/62A="},
		{"V7", v1Secret, v1ID, v1Time, []byte("{\"name\":\"Zoë ☃\",\"n\":1}\n"), "v1,/+1m5vC9T9GTfQCTm9gSUeYU8fWRGajSwpBuhgC2gg8="},
		{"V8", v1Secret, v1ID, v1Time, all, "v1,sEcZ042G8Crqgxbybb3y0eDxQR3TcfYsk11I1XULhSI="},
		{"V9", v9Secret, v1ID, v1Time, []byte(v1Body), v9Sig},
		{"V10 new key", v9Secret, v1ID, v1Time, []byte(v1Body), v9Sig + " " + v1Sig},
		{"V10 old key", v1Secret, v1ID, v1Time, []byte(v1Body), v9Sig + " " + v1Sig},
		{"V11", v1Secret, "msg_2KWPBgLlAfxdpx2AI54pPJ85f4W", 1674087231, []byte(v11Body), "v1,ARw42xaAApl/nxRo+iPGYwSaMQaOwMo2eyH5JBRA+bQ="},
		{"V12 24 bytes", key24, "msg_test", 1700000000, []byte(`{"a":1}`), "v1,62tJyCcvDG/tDZ/aXrEXJ/VH1OEQsfMfdvl2zC6lKQM="},
		{"V12 32 bytes", key32, "msg_test", 1700000000, []byte(`{"a":1}`), "v1,zM805ub/HuNgRQquf7DOmQTAXz4paUhBB8MyV0LLA4M="},
		{"V12 64 bytes", key64, "msg_test", 1700000000, []byte(`{"a":1}`), "v1,bRGeRJ9Yf4IOoPDR0VhftiVJApuS8xEOKfkHDoI/HHk="},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			v := newVerifier(t, Config{Secrets: []string{tt.secret}, Now: at(tt.ts)})
			h := v1Headers(tt.sig)
			h.Set("webhook-id", tt.id)
			h.Set("webhook-timestamp", strconv.FormatInt(tt.ts, 10))
			m, err := v.Payload(h, tt.body)
			require.NoError(t, err)
			assert.Equal(t, Message{ID: tt.id, Timestamp: time.Unix(tt.ts, 0), Body: tt.body}, m)

			_, err = v.Payload(h, append(bytes.Clone(tt.body), ' '))
			require.ErrorIs(t, err, ErrMismatch)
		})
	}
}

func TestS10WhatDoesNotVerify(t *testing.T) {
	t.Parallel()
	with := func(name string, values ...string) http.Header {
		h := v1Headers(v1Sig)
		h.Del(name)
		for _, value := range values {
			h.Add(name, value)
		}
		return h
	}
	var many strings.Builder
	for range maxSignatures {
		many.WriteString(v9Sig + " ")
	}
	tests := map[string]struct {
		header http.Header
		body   string
		want   error
	}{
		"no id":                      {with("webhook-id"), v1Body, ErrMissingHeader},
		"no timestamp":               {with("webhook-timestamp"), v1Body, ErrMissingHeader},
		"no signature":               {with("webhook-signature"), v1Body, ErrMissingHeader},
		"empty id":                   {with("webhook-id", ""), v1Body, ErrMissingHeader},
		"empty timestamp":            {with("webhook-timestamp", ""), v1Body, ErrMissingHeader},
		"empty signature":            {with("webhook-signature", ""), v1Body, ErrMissingHeader},
		"two ids":                    {with("webhook-id", v1ID, "other"), v1Body, ErrMalformedHeader},
		"two timestamps":             {with("webhook-timestamp", "1614265330", "1"), v1Body, ErrMalformedHeader},
		"two signature headers":      {with("webhook-signature", v1Sig, v9Sig), v1Body, ErrMalformedHeader},
		"id with a full stop":        {with("webhook-id", "a.b"), v1Body, ErrMalformedHeader},
		"id with a line break":       {with("webhook-id", "a\nb"), v1Body, ErrMalformedHeader},
		"id with a space":            {with("webhook-id", "a b"), v1Body, ErrMalformedHeader},
		"timestamp in words":         {with("webhook-timestamp", "now"), v1Body, ErrMalformedHeader},
		"timestamp with a sign":      {with("webhook-timestamp", "+1614265330"), v1Body, ErrMalformedHeader},
		"timestamp below zero":       {with("webhook-timestamp", "-1614265330"), v1Body, ErrMalformedHeader},
		"timestamp with a fraction":  {with("webhook-timestamp", "1614265330.0"), v1Body, ErrMalformedHeader},
		"timestamp with a space":     {with("webhook-timestamp", " 1614265330"), v1Body, ErrMalformedHeader},
		"timestamp without end":      {with("webhook-timestamp", "99999999999999999999999"), v1Body, ErrMalformedHeader},
		"timestamp in milliseconds":  {with("webhook-timestamp", "1614265330000"), v1Body, ErrMalformedHeader},
		"timestamp of another":       {with("webhook-timestamp", "1614265331"), v1Body, ErrMismatch},
		"id of another":              {with("webhook-id", "msg_other"), v1Body, ErrMismatch},
		"v2 only":                    {with("webhook-signature", strings.Replace(v1Sig, "v1,", "v2,", 1)), v1Body, ErrMismatch},
		"v1a with an HMAC in it":     {with("webhook-signature", strings.Replace(v1Sig, "v1,", "v1a,", 1)), v1Body, ErrMismatch},
		"version alone":              {with("webhook-signature", "v1,"), v1Body, ErrMismatch},
		"comma alone":                {with("webhook-signature", ","), v1Body, ErrMismatch},
		"no version":                 {with("webhook-signature", strings.TrimPrefix(v1Sig, "v1,")), v1Body, ErrMismatch},
		"not base64":                 {with("webhook-signature", "v1,@@@"), v1Body, ErrMismatch},
		"hexadecimal":                {with("webhook-signature", "v1,"+strings.Repeat("0f", 32)), v1Body, ErrMismatch},
		"cut signature":              {with("webhook-signature", v1Sig[:len(v1Sig)-5]), v1Body, ErrMismatch},
		"first bytes of it":          {with("webhook-signature", "v1,g0hM"), v1Body, ErrMismatch},
		"another secret's":           {with("webhook-signature", v9Sig), v1Body, ErrMismatch},
		"comma between signatures":   {with("webhook-signature", v9Sig+","+v1Sig), v1Body, ErrMismatch},
		"too many signatures":        {with("webhook-signature", many.String()+v1Sig), v1Body, ErrMalformedHeader},
		"body changed by one byte":   {v1Headers(v1Sig), strings.Replace(v1Body, "2", "3", 1), ErrMismatch},
		"body one byte shorter":      {v1Headers(v1Sig), v1Body[:len(v1Body)-1], ErrMismatch},
		"body re-encoded":            {v1Headers(v1Sig), `{"test":2432232314}`, ErrMismatch},
		"empty body":                 {v1Headers(v1Sig), "", ErrMismatch},
		"another prefix's headers":   {http.Header{"Svix-Id": {v1ID}, "Svix-Timestamp": {"1614265330"}, "Svix-Signature": {v1Sig}}, v1Body, ErrMissingHeader},
		"signed content moved about": {func() http.Header { h := with("webhook-id", v1ID+".1614265330"); return h }(), v1Body, ErrMalformedHeader},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, err := newVerifier(t, Config{}).Payload(tt.header, []byte(tt.body))
			require.ErrorIs(t, err, tt.want)
			assert.Equal(t, Message{}, m)
			assert.NotContains(t, err.Error(), "g0hM")
			assert.NotContains(t, err.Error(), "MfKQ")
		})
	}
}

func TestS10UnknownVersionsBesideAKnownOneDoNoHarm(t *testing.T) {
	t.Parallel()
	_, err := newVerifier(t, Config{}).Payload(v1Headers("v2,abc v1 v1,@ "+v5Sig+" "+v1Sig+" v3,"), []byte(v1Body))
	require.NoError(t, err)
}

func TestS10TheToleranceIsFiveMinutesBothWays(t *testing.T) {
	t.Parallel()
	for offset, want := range map[int64]error{
		0: nil, 300: nil, 301: ErrTooOld, 86400: ErrTooOld, -300: nil, -301: ErrTooNew, -86400: ErrTooNew,
	} {
		_, err := newVerifier(t, Config{Now: at(v1Time + offset)}).Payload(v1Headers(v1Sig), []byte(v1Body))
		require.ErrorIs(t, err, want, "%d s after", offset)
	}
	_, err := newVerifier(t, Config{Now: at(v1Time + 61), Tolerance: time.Minute}).Payload(v1Headers(v1Sig), []byte(v1Body))
	require.ErrorIs(t, err, ErrTooOld)
	_, err = newVerifier(t, Config{Now: at(v1Time * 2), Tolerance: -1}).Payload(v1Headers(v1Sig), []byte(v1Body))
	require.NoError(t, err, "turned off")
	_, err = Payload(v1Headers(v1Sig), []byte(v1Body), v1Secret)
	require.ErrorIs(t, err, ErrTooOld, "the function looks at the clock")
}

func TestThePackageFunctionVerifiesWhatWasSignedNow(t *testing.T) {
	t.Parallel()
	raw, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(v5Secret, "whsk_"))
	require.NoError(t, err)
	ts := strconv.FormatInt(time.Now().Unix(), 10)
	sig := ed25519.Sign(raw, []byte("msg_1."+ts+".{}"))
	h := http.Header{}
	h.Set("webhook-id", "msg_1")
	h.Set("webhook-timestamp", ts)
	h.Set("webhook-signature", "v1a,"+base64.StdEncoding.EncodeToString(sig))
	m, err := Payload(h, []byte("{}"), v1Secret, v5Public)
	require.NoError(t, err)
	assert.Equal(t, "msg_1", m.ID)
	_, err = Payload(h, []byte("{}"), "whsec_")
	require.ErrorIs(t, err, ErrInvalidSecret)
}

func TestS06MalformedSecretsAreRefusedWithoutBeingEchoed(t *testing.T) {
	t.Parallel()
	bytesOf := func(n int) string { return "whsec_" + base64.StdEncoding.EncodeToString(make([]byte, n)) }
	for name, secret := range map[string]string{
		"empty": "", "prefix alone": "whsec_", "public prefix alone": "whpk_", "23 bytes": bytesOf(23), "65 bytes": bytesOf(65),
		"bad base64": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaS!", "line break": v1Secret + "\n", "space": " " + v1Secret,
		"signing key": v5Secret, "short public key": "whpk_1SiA", "no padding": strings.TrimSuffix(v5Public, "="),
	} {
		_, err := New(Config{Secrets: []string{v9Secret, secret}})
		require.ErrorIs(t, err, ErrInvalidSecret, name)
		require.ErrorContains(t, err, "Secrets[1]", name)
		assert.NotContains(t, err.Error(), "MfKQ", name)
		assert.NotContains(t, err.Error(), "6Xb/", name)
	}
	_, err := New(Config{})
	require.ErrorIs(t, err, ErrInvalidSecret)
	_, err = New(Config{Secrets: []string{"hush\n"}, Scheme: Shopify{}})
	require.ErrorIs(t, err, ErrInvalidSecret)
	_, err = New(Config{Secrets: []string{""}, Scheme: GitHub{}})
	require.ErrorIs(t, err, ErrInvalidSecret)
	_, err = New(Config{Secrets: []string{v1Secret}, MaxBody: -1})
	require.ErrorContains(t, err, "MaxBody")
}

func TestASeveralSecretsVerifierAcceptsEach(t *testing.T) {
	t.Parallel()
	v := newVerifier(t, Config{Secrets: []string{v9Secret, v5Public, v1Secret}})
	for _, sig := range []string{v1Sig, v9Sig, v5Sig, v9Sig + " " + v1Sig, "v1,AAAA " + v5Sig} {
		_, err := v.Payload(v1Headers(sig), []byte(v1Body))
		require.NoError(t, err, sig)
	}
}

const (
	stripeBody = `{"id":"evt_test_webhook","object":"event"}`
	stripeV1   = "v1=d95c6b7477fbd7e9f90b1b0ef5f9c7ac25abca5382460e0d988c2b2a5b71b990"
	stripeOld  = "v1=e016b64cc4263f90e0336f3975e8d4ac9cc185935edc3ebdd405db64ad0bb1c5"
	slackBody  = "token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V" +
		"&channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text=" +
		"&response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN" +
		"&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c"
)

func TestTheFormatsOfOtherSenders(t *testing.T) {
	t.Parallel()
	const (
		slackSecret = "8f742231b10e8888abcd99yyyzzz85a5"
		slackSig    = "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503"
		gitHubSig   = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
		shopifySig  = "kxsFTgDOlihbs91PqCBFjROWdTQGkFF0NzCvVuvOLsU="
		gitHubKey   = "It's a Secret to Everybody"
	)
	for _, tt := range []struct {
		name   string
		scheme Scheme
		secret string
		now    int64
		header map[string]string
		body   string
		want   error
	}{
		{"Stripe", Stripe{}, "whsec_test_secret", 1700000000, map[string]string{"Stripe-Signature": "t=1700000000," + stripeV1}, stripeBody, nil},
		{"Stripe rotation", Stripe{}, "whsec_old_secret", 1700000000, map[string]string{"Stripe-Signature": "t=1700000000," + stripeV1 + "," + stripeOld}, stripeBody, nil},
		{"Stripe v0 ignored", Stripe{}, "whsec_test_secret", 1700000000, map[string]string{"Stripe-Signature": "t=1700000000,v0=zz,v1=zz," + stripeV1}, stripeBody, nil},
		{"Stripe v0 only", Stripe{}, "whsec_test_secret", 1700000000, map[string]string{"Stripe-Signature": "t=1700000000,v0" + stripeV1[2:]}, stripeBody, ErrMismatch},
		{"Stripe empty v1", Stripe{}, "whsec_test_secret", 1700000000, map[string]string{"Stripe-Signature": "t=1700000000,v1="}, stripeBody, ErrMismatch},
		{"Stripe no t", Stripe{}, "whsec_test_secret", 1700000000, map[string]string{"Stripe-Signature": stripeV1}, stripeBody, ErrMalformedHeader},
		{"Stripe two t", Stripe{}, "whsec_test_secret", 1700000000, map[string]string{"Stripe-Signature": "t=1,t=1700000000," + stripeV1}, stripeBody, ErrMalformedHeader},
		{"Stripe too many", Stripe{}, "whsec_test_secret", 1700000000, map[string]string{"Stripe-Signature": "t=1700000000" + strings.Repeat(",v1=00", 65)}, stripeBody, ErrMalformedHeader},
		{"Stripe missing", Stripe{}, "whsec_test_secret", 1700000000, nil, stripeBody, ErrMissingHeader},
		{"Stripe old", Stripe{}, "whsec_test_secret", 1700000301, map[string]string{"Stripe-Signature": "t=1700000000," + stripeV1}, stripeBody, ErrTooOld},
		{"Stripe new", Stripe{}, "whsec_test_secret", 1699999699, map[string]string{"Stripe-Signature": "t=1700000000," + stripeV1}, stripeBody, ErrTooNew},
		{"Stripe body", Stripe{}, "whsec_test_secret", 1700000000, map[string]string{"Stripe-Signature": "t=1700000000," + stripeV1}, stripeBody + " ", ErrMismatch},
		{"Stripe decoded key", Stripe{}, "test_secret", 1700000000, map[string]string{"Stripe-Signature": "t=1700000000," + stripeV1}, stripeBody, ErrMismatch},
		{"Stripe header", Stripe{Header: "acme-signature"}, "whsec_test_secret", 1700000000, map[string]string{"Acme-Signature": "t=1700000000," + stripeV1}, stripeBody, nil},
		{"GitHub", GitHub{}, gitHubKey, 0, map[string]string{"X-Hub-Signature-256": gitHubSig}, "Hello, World!", nil},
		{"GitHub sha1", GitHub{}, gitHubKey, 0, map[string]string{"X-Hub-Signature-256": "sha1=01dc10d0c83e72ed246219cdd91669667fe2ca59"}, "Hello, World!", ErrMismatch},
		{"GitHub body", GitHub{}, gitHubKey, 0, map[string]string{"X-Hub-Signature-256": gitHubSig}, "Hello, World", ErrMismatch},
		{"GitHub empty", GitHub{}, gitHubKey, 0, map[string]string{"X-Hub-Signature-256": "sha256="}, "Hello, World!", ErrMismatch},
		{"GitHub missing", GitHub{}, gitHubKey, 0, nil, "Hello, World!", ErrMissingHeader},
		{"GitHub header", GitHub{Header: "X-Acme"}, gitHubKey, 0, map[string]string{"X-Acme": gitHubSig}, "Hello, World!", nil},
		{"Shopify", Shopify{}, "hush", 0, map[string]string{"X-Shopify-Hmac-SHA256": shopifySig}, `{"foo":"bar"}`, nil},
		{"Shopify body", Shopify{}, "hush", 0, map[string]string{"X-Shopify-Hmac-SHA256": shopifySig}, `{"foo":"baz"}`, ErrMismatch},
		{"Shopify not base64", Shopify{}, "hush", 0, map[string]string{"X-Shopify-Hmac-SHA256": "@"}, `{"foo":"bar"}`, ErrMismatch},
		{"Shopify missing", Shopify{}, "hush", 0, nil, `{"foo":"bar"}`, ErrMissingHeader},
		{"Slack", Slack{}, slackSecret, 1531420618, map[string]string{"X-Slack-Signature": slackSig, "X-Slack-Request-Timestamp": "1531420618"}, slackBody, nil},
		{"Slack timestamp", Slack{}, slackSecret, 1531420618, map[string]string{"X-Slack-Signature": slackSig, "X-Slack-Request-Timestamp": "1531420619"}, slackBody, ErrMismatch},
		{"Slack old", Slack{}, slackSecret, 1531420919, map[string]string{"X-Slack-Signature": slackSig, "X-Slack-Request-Timestamp": "1531420618"}, slackBody, ErrTooOld},
		{"Slack bad timestamp", Slack{}, slackSecret, 1531420618, map[string]string{"X-Slack-Signature": slackSig, "X-Slack-Request-Timestamp": "soon"}, slackBody, ErrMalformedHeader},
		{"Slack no timestamp", Slack{}, slackSecret, 1531420618, map[string]string{"X-Slack-Signature": slackSig}, slackBody, ErrMissingHeader},
		{"Slack no signature", Slack{}, slackSecret, 1531420618, map[string]string{"X-Slack-Request-Timestamp": "1531420618"}, slackBody, ErrMissingHeader},
		{"Slack v1", Slack{}, slackSecret, 1531420618, map[string]string{"X-Slack-Signature": "v1" + slackSig[2:], "X-Slack-Request-Timestamp": "1531420618"}, slackBody, ErrMismatch},
		{"Slack headers", Slack{Header: "A", TimestampHeader: "B"}, slackSecret, 1531420618, map[string]string{"A": slackSig, "B": "1531420618"}, slackBody, nil},
		{"Svix prefix", StandardWebhooks{Prefix: "svix-"}, v1Secret, v1Time, map[string]string{"Svix-Id": v1ID, "Svix-Timestamp": "1614265330", "Svix-Signature": v1Sig}, v1Body, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h := make(http.Header)
			for name, value := range tt.header {
				h.Set(name, value)
			}
			v := newVerifier(t, Config{Scheme: tt.scheme, Secrets: []string{tt.secret}, Now: at(tt.now)})
			_, err := v.Payload(h, []byte(tt.body))
			require.ErrorIs(t, err, tt.want)
		})
	}
}

func TestP06AVerifierDoesNotPrintItsSecrets(t *testing.T) {
	t.Parallel()
	cfg := Config{Secrets: []string{v1Secret}}
	v := newVerifier(t, cfg)
	type holder struct{ v *Verifier }
	for _, value := range []any{cfg, &cfg, v, *v, holder{v}, struct{ C Config }{cfg}} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%d", "%x"} {
			out := fmt.Sprintf(verb, value)
			assert.NotContains(t, out, "MfKQ", "%T %s", value, verb)
			assert.NotContains(t, out, "49 242 144", "%T %s", value, verb)
			assert.NotContains(t, out, "31f290", "%T %s", value, verb)
		}
	}
}

func FuzzClaims(f *testing.F) {
	f.Add(v1ID, "1614265330", v1Sig, []byte(v1Body))
	f.Add(v1ID, "1614265330", v9Sig+" "+v1Sig+" v2,x v1, ,", []byte(v1Body))
	f.Add("a.b", "-1", "t=1,v1=zz,v0=,t=2", []byte{})
	f.Add("", "99999999999999999999", "sha256=00", []byte{0})
	schemes := []Scheme{StandardWebhooks{}, Stripe{}, GitHub{}, Shopify{}, Slack{}}
	f.Fuzz(func(t *testing.T, id, ts, sig string, body []byte) {
		h := http.Header{
			"Webhook-Id": {id}, "Webhook-Timestamp": {ts}, "Webhook-Signature": {sig}, "Stripe-Signature": {sig},
			"X-Hub-Signature-256": {sig}, "X-Shopify-Hmac-Sha256": {sig}, "X-Slack-Signature": {sig}, "X-Slack-Request-Timestamp": {ts},
		}
		for _, scheme := range schemes {
			v := newVerifier(t, Config{Scheme: scheme})
			m, err := v.Payload(h, body)
			if err == nil {
				_, standard := scheme.(StandardWebhooks)
				require.True(t, standard && m.ID == v1ID && string(body) == v1Body, "forged")
			}
		}
	})
}

func FuzzSecrets(f *testing.F) {
	for _, seed := range []string{v1Secret, v5Secret, v5Public, v9Secret, "", "whsec_", "whpk_", "hush"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, secret string) {
		for _, scheme := range []Scheme{StandardWebhooks{}, Stripe{}} {
			if _, err := New(Config{Scheme: scheme, Secrets: []string{secret}}); err != nil {
				require.ErrorIs(t, err, ErrInvalidSecret)
			}
		}
	})
}

func BenchmarkPayload(b *testing.B) {
	v, h, body := newVerifier(b, Config{}), v1Headers(v9Sig+" "+v1Sig), []byte(v1Body)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := v.Payload(h, body); err != nil {
			b.Fatal(err)
		}
	}
}
