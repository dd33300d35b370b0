package main

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outhook/webhook"
)

var interrupt = os.Interrupt

// listening is a running 'webhook listen'.
type listening struct {
	url  string
	out  <-chan string
	wait func() int
}

var address = regexp.MustCompile(`http://[0-9.:]+`)

func listen(t *testing.T, env []string, args ...string) *listening {
	t.Helper()
	w := &world{env: env}
	cmd := w.command(t.Context(), append([]string{"listen", "--addr", "127.0.0.1:0"}, args...)...)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	errs, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	url := address.FindString(<-lines(errs))
	require.NotEmpty(t, url)
	return &listening{url: url, out: lines(out), wait: func() int {
		_ = cmd.Wait()
		return cmd.ProcessState.ExitCode()
	}}
}

func (l *listening) post(t *testing.T, secret, body string) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, l.url+"/in?a=1", strings.NewReader(body))
	require.NoError(t, err)
	if secret != "" {
		parsed, err := webhook.ParseSecret(secret)
		require.NoError(t, err)
		require.NoError(t, webhook.StandardWebhooks().Sign(context.Background(), req.Header, webhook.SignInput{
			ID: "evt_1", Time: time.Now(), Body: []byte(body), Secrets: []webhook.Secret{parsed},
		}))
	}
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	resp.Body.Close()
	return resp.StatusCode
}

func TestListenVerifiesAndPrints(t *testing.T) {
	t.Parallel()
	secret := webhook.NewSecret().Reveal()
	l := listen(t, []string{"WEBHOOK_SECRET=" + secret}, "--json", "--count", "2")

	good := l.post(t, secret, `{"order":"o_1"}`)
	bad := l.post(t, webhook.NewSecret().Reveal(), `not json`)

	assert.Equal(t, 204, good)
	assert.Equal(t, 401, bad)
	var first, second received
	require.NoError(t, json.Unmarshal([]byte(<-l.out), &first))
	require.NoError(t, json.Unmarshal([]byte(<-l.out), &second))
	require.NotNil(t, first.Verified)
	assert.True(t, *first.Verified)
	assert.Equal(t, "evt_1", first.ID)
	assert.JSONEq(t, `{"order":"o_1"}`, string(first.Body))
	assert.Equal(t, "/in?a=1", first.Path)
	require.NotNil(t, second.Verified)
	assert.False(t, *second.Verified)
	assert.Contains(t, second.Problem, "no signature matches")
	assert.Equal(t, "not json", second.Text)
	assert.Zero(t, l.wait(), "it ends after --count")
}

func TestListenPrintsForPeopleWithoutControlCharacters(t *testing.T) {
	t.Parallel()
	l := listen(t, nil, "--count", "1", "--color", "never", "--headers")

	l.post(t, "", "{\"text\":\"tidy\"}")

	all := ""
	for line := range l.out {
		all += line + "\n"
	}
	assert.Contains(t, all, "not verified")
	assert.Contains(t, all, "answered 204")
	assert.Contains(t, all, "\n  {\n    \"text\": \"tidy\"\n  }\n")
	assert.Contains(t, all, "user-agent:")
	assert.Equal(t, "red \uFFFD[31m", visible("red \x1b[31m"))
	l.wait()
}

func TestListenMisbehavesAsTold(t *testing.T) {
	t.Parallel()
	always := listen(t, nil, "--status", "503", "--count", "2")
	never := listen(t, nil, "--status", "503", "--fail", "0%", "--count", "1")
	slow := listen(t, nil, "--delay", "300ms", "--count", "1")

	assert.Equal(t, 503, always.post(t, "", "{}"))
	assert.Equal(t, 503, always.post(t, "", "{}"))
	assert.Equal(t, 204, never.post(t, "", "{}"))
	began := time.Now()
	assert.Equal(t, 204, slow.post(t, "", "{}"))
	assert.GreaterOrEqual(t, time.Since(began), 300*time.Millisecond)
	for _, l := range []*listening{always, never, slow} {
		assert.Zero(t, l.wait())
	}
}

func TestAShareIsWrittenAsPeopleDo(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]float64{"30%": 0.3, "30 %": 0.3, "0.3": 0.3, "0": 0, "100%": 1} {
		var f shareFlag
		require.NoError(t, f.Set(text), text)
		assert.InDelta(t, want, f.share, 1e-9, text)
	}
	for _, text := range []string{"", "30", "-1%", "101%", "NaN", "half"} {
		require.Error(t, new(shareFlag).Set(text), text)
	}
}
