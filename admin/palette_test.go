package admin_test

import (
	"math"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// palette are the colours of a scheme by their names.
type palette map[string]string

var colourPattern = regexp.MustCompile(`--([a-z-]+): (#[0-9a-f]{6});`)

// palettes reads the style sheet that is served.
func palettes(t *testing.T) (light, dark palette) {
	t.Helper()
	w := newWorld(t)
	sheet := w.ask(w.portal, "acme", "GET", "/static/admin.css", nil)
	require.Equal(t, http.StatusOK, sheet.Status)
	first, rest, ok := strings.Cut(sheet.Body, "@media (prefers-color-scheme: dark) {")
	require.True(t, ok)
	second, _, _ := strings.Cut(rest, "*, *::before")
	read := func(text string) palette {
		p := palette{}
		for _, m := range colourPattern.FindAllStringSubmatch(text, -1) {
			p[m[1]] = m[2]
		}
		return p
	}
	return read(first), read(second)
}

// contrast is that of two colours by WCAG 2.2, from 1 to 21.
func contrast(t *testing.T, a, b string) float64 {
	t.Helper()
	luminance := func(colour string) float64 {
		n, err := strconv.ParseUint(strings.TrimPrefix(colour, "#"), 16, 32)
		require.NoError(t, err, "%q", colour)
		sum := 0.0
		for i, weight := range []float64{0.2126, 0.7152, 0.0722} {
			c := float64(n>>(16-8*i)&0xff) / 255
			if c <= 0.04045 {
				c /= 12.92
			} else {
				c = math.Pow((c+0.055)/1.055, 2.4)
			}
			sum += weight * c
		}
		return sum
	}
	l, m := luminance(a), luminance(b)
	return (max(l, m) + 0.05) / (min(l, m) + 0.05)
}

// Text can be read in both schemes (WCAG 2.2 AA, 1.4.3), and so can what a chart or the
// ring around what has the focus says by its colour (1.4.11).
func TestThePaletteHasEnoughContrast(t *testing.T) {
	t.Parallel()
	light, dark := palettes(t)
	require.Len(t, dark, len(light), "both schemes have the same colours")
	for scheme, p := range map[string]palette{"light": light, "dark": dark} {
		need := func(least float64, fore string, grounds ...string) {
			t.Helper()
			for _, ground := range grounds {
				got := contrast(t, p[fore], p[ground])
				assert.GreaterOrEqual(t, got, least, "%s: %s on %s", scheme, fore, ground)
			}
		}
		need(4.5, "text", "bg", "surface", "sunken", "accent-soft", "ok-soft", "bad-soft", "warn-soft", "info-soft", "still-soft")
		need(4.5, "muted", "bg", "surface", "sunken")
		need(4.5, "accent", "bg", "surface", "sunken")
		need(4.5, "accent-text", "accent")
		for _, state := range []string{"ok", "bad", "warn", "info", "still"} {
			need(4.5, state, state+"-soft", "surface")
		}
		need(3, "accent", "bg", "surface") // the ring, and the median
		need(3, "ok-fill", "surface")
		need(3, "bad-fill", "surface")
		need(3, "warn-fill", "surface")
	}
}
