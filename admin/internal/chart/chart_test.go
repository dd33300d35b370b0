package chart_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/outhook/webhook/admin/internal/chart"
)

func TestTheScaleEndsAtANumberThatIsEasilyRead(t *testing.T) {
	t.Parallel()
	for v, want := range map[float64]float64{0: 1, 1: 1, 3: 5, 7: 10, 11: 20, 21: 25, 26: 50, 51: 100, 1204: 2000, 2300: 2500, 99999: 100000} {
		assert.InDelta(t, want, chart.Nice(v), 0, "%v", v)
	}
}

func TestBarsStandOnTheGroundAndOnOneAnother(t *testing.T) {
	t.Parallel()
	c := chart.NewBars([]chart.Bar{
		{Segments: []chart.Segment{{Value: 60, Class: "ok"}, {Value: 40, Class: "bad"}}, Title: "one"},
		{Title: "two"},
	})
	assert.InDelta(t, 100, c.Top, 0)
	require.Len(t, c.Rects, 2)
	assert.InDelta(t, 40, c.Rects[0].Y, 0)
	assert.InDelta(t, 60, c.Rects[0].H, 0)
	assert.InDelta(t, 0, c.Rects[1].Y, 0)
	require.Len(t, c.Columns, 2)
	assert.Equal(t, "two", c.Columns[1].Title)
}

func TestNothingIsDrawnOutsideOfThePicture(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(rapid.Float64Range(0, 1e12), 0, 60).Draw(t, "values")
		bars := make([]chart.Bar, len(values))
		for i, v := range values {
			bars[i] = chart.Bar{Segments: []chart.Segment{{Value: v}, {Value: 1}}}
		}
		for _, r := range chart.NewBars(bars).Rects {
			if r.X < 0 || r.X+r.W > chart.Width+0.02 || r.Y < 0 || r.Y > chart.Height || r.H <= 0 {
				t.Fatalf("outside: %+v", r)
			}
		}
	})
}
