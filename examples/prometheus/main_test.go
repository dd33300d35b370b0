package main

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/outhook/webhook"
	"github.com/outhook/webhook/otelwebhook"
)

// exported returns the names of all series that the exporter shows once everything has
// happened, and those of the labels.
func exported(t *testing.T) (series, labels map[string]bool) {
	t.Helper()
	provider, handler, err := newExporter()
	require.NoError(t, err)
	metrics, err := otelwebhook.NewMetrics(provider)
	require.NoError(t, err)
	_, err = otelwebhook.ObserveCanary(provider, func() time.Duration { return time.Second })
	require.NoError(t, err)
	report := webhook.AttemptReport{State: webhook.StateDelivered, Attempt: webhook.Attempt{Number: 1}}
	metrics.AttemptDone(report)
	report.Class, report.Number, report.State = webhook.ClassBlocked, 2, webhook.StateDead
	metrics.AttemptDone(report)
	metrics.FanOutDone(webhook.FanOutReport{Events: 2, Unmatched: 1, Deliveries: 1})
	metrics.ClaimDone(webhook.ClaimReport{Claimed: 1, TakenOver: 1})
	metrics.CircuitChanged(webhook.CircuitReport{State: webhook.CircuitOpen, Flapped: true})
	metrics.ReplayAdvanced(webhook.ReplayReport{State: webhook.ReplayDone, Begun: 1})
	metrics.SheddingChanged(webhook.SheddingReport{Shedding: true})
	metrics.DeliveriesShed(webhook.ShedReport{Count: 1})
	metrics.StateSampled(webhook.DispatcherSample{Notifies: true, Listening: true})

	w := httptest.NewRecorder()
	handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	require.Equal(t, http.StatusOK, w.Code)
	series, labels = make(map[string]bool), map[string]bool{"le": true}
	label := regexp.MustCompile(`[{,]([a-z_]+)="`)
	for line := range strings.SplitSeq(w.Body.String(), "\n") {
		if line == "" || line[0] == '#' {
			continue
		}
		series[line[:strings.IndexAny(line, "{ ")]] = true
		for _, m := range label.FindAllStringSubmatch(line, -1) {
			labels[m[1]] = true
		}
	}
	return series, labels
}

var (
	metricName = regexp.MustCompile(`\bwebhook_[a-z_]+`)
	matcher    = regexp.MustCompile(`\{([^{}]*)\}`)
	grouping   = regexp.MustCompile(`\bby \(([^)]*)\)`)
	labelName  = regexp.MustCompile(`[a-z_]+`)
)

// checkExpression checks that all that an expression names is exported, and returns the
// metrics in it.
func checkExpression(t *testing.T, expr string, series, labels map[string]bool) []string {
	t.Helper()
	require.NotEmpty(t, expr)
	assert.Equal(t, strings.Count(expr, "("), strings.Count(expr, ")"), expr)
	for _, group := range grouping.FindAllStringSubmatch(expr, -1) {
		for _, name := range labelName.FindAllString(group[1], -1) {
			assert.True(t, labels[name], "no label %s: %s", name, expr)
		}
	}
	for _, group := range matcher.FindAllStringSubmatch(expr, -1) {
		name, _, _ := strings.Cut(group[1], "=")
		assert.True(t, labels[name], "no label %s: %s", name, expr)
	}
	bare := grouping.ReplaceAllString(matcher.ReplaceAllString(expr, ""), "")
	names := metricName.FindAllString(bare, -1)
	require.NotEmpty(t, names, expr)
	for _, name := range names {
		assert.True(t, series[name], "no metric %s: %s", name, expr)
	}
	return names
}

func TestTheDashboardShowsWhatIsExportedAndAllOfIt(t *testing.T) {
	t.Parallel()
	series, labels := exported(t)
	raw, err := os.ReadFile("dashboard.json")
	require.NoError(t, err)
	var dashboard struct {
		Panels []struct {
			Title   string `json:"title"`
			GridPos struct {
				X int `json:"x"`
				Y int `json:"y"`
			} `json:"gridPos"`
			Targets []struct {
				Expr         string `json:"expr"`
				LegendFormat string `json:"legendFormat"`
			} `json:"targets"`
		} `json:"panels"`
	}
	require.NoError(t, json.Unmarshal(raw, &dashboard))
	shown := make(map[string]bool)
	places := make(map[[2]int]bool)
	legend := regexp.MustCompile(`\{\{([a-z_]+)\}\}`)
	for _, panel := range dashboard.Panels {
		require.NotEmpty(t, panel.Targets, panel.Title)
		place := [2]int{panel.GridPos.X, panel.GridPos.Y}
		assert.False(t, places[place], "two panels at one place: %s", panel.Title)
		places[place] = true
		for _, target := range panel.Targets {
			for _, name := range checkExpression(t, target.Expr, series, labels) {
				shown[name] = true
			}
			for _, m := range legend.FindAllStringSubmatch(target.LegendFormat, -1) {
				assert.True(t, labels[m[1]], "no label %s: %s", m[1], target.LegendFormat)
			}
		}
	}
	for name := range series {
		if strings.HasSuffix(name, "_sum") || strings.HasSuffix(name, "_count") {
			continue
		}
		assert.True(t, shown[name], "%s is not on the dashboard", name)
	}
}

func TestTheRulesAskForWhatIsExported(t *testing.T) {
	t.Parallel()
	series, labels := exported(t)
	raw, err := os.ReadFile("alerts.yml")
	require.NoError(t, err)
	var file struct {
		Groups []struct {
			Name  string
			Rules []struct {
				Alert, Expr, For    string
				Labels, Annotations map[string]string
			}
		}
	}
	decoder := yaml.NewDecoder(strings.NewReader(string(raw)))
	decoder.KnownFields(true)
	require.NoError(t, decoder.Decode(&file))
	paged := make(map[string]bool)
	for _, group := range file.Groups {
		for _, rule := range group.Rules {
			_, err := time.ParseDuration(rule.For)
			assert.NoError(t, err, rule.Alert)
			assert.NotEmpty(t, rule.Annotations["summary"], rule.Alert)
			for _, name := range checkExpression(t, rule.Expr, series, labels) {
				if rule.Labels["severity"] == "page" {
					paged[name] = true
				}
			}
		}
	}
	assert.Equal(t, map[string]bool{
		"webhook_delivery_first_attempt_latency_seconds_bucket": true,
		"webhook_scheduler_oldest_ready_age_seconds":            true,
		"webhook_canary_receipt_gap_seconds":                    true,
	}, paged, "what to be woken for")
}

func TestTheExampleShowsRealAttempts(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, listener) }()

	succeeded := regexp.MustCompile(`webhook_attempts_total\{webhook_outcome="success"\} [1-9]`)
	gap := regexp.MustCompile(`webhook_canary_receipt_gap_seconds 0\.`)
	require.Eventually(t, func() bool {
		resp, err := http.Get("http://" + listener.Addr().String() + "/metrics")
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		return err == nil && succeeded.Match(text) && gap.Match(text)
	}, 30*time.Second, 50*time.Millisecond)
	stop()
	require.NoError(t, <-ended)
}
