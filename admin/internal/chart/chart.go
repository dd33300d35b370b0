// Package chart lays out small charts: it turns figures into the shapes of an inline
// SVG, which a template writes down. It knows no colours, only names of classes.
package chart

import "math"

// Width and Height are those of the view box in which shapes lie. The picture is
// stretched to whatever room there is, so no text may stand in it.
const (
	Width  = 1000
	Height = 100
)

// Rect is a rectangle.
type Rect struct {
	X, Y, W, H float64
	Class      string
	// Title is what a pointer on it shows.
	Title string
}

// Segment is a part of a bar, from the bottom up.
type Segment struct {
	Value float64
	Class string
}

// Bar is one bar.
type Bar struct {
	Segments []Segment
	Title    string
}

// Bars is a laid-out bar chart.
type Bars struct {
	Rects []Rect
	// Columns are invisible and as high as the picture: they carry the titles.
	Columns []Rect
	Top     float64 // the value at the upper edge
}

// NewBars lays out bars side by side.
func NewBars(bars []Bar) Bars {
	var most float64
	for _, b := range bars {
		var sum float64
		for _, s := range b.Segments {
			sum += s.Value
		}
		most = max(most, sum)
	}
	c := Bars{Top: Nice(most)}
	if len(bars) == 0 {
		return c
	}
	slot := float64(Width) / float64(len(bars))
	gap := min(slot*0.22, 8)
	for i, b := range bars {
		x := round(float64(i)*slot + gap/2)
		y := float64(Height)
		for _, s := range b.Segments {
			if s.Value <= 0 {
				continue
			}
			// What is there is seen, however little it is.
			h := max(s.Value/c.Top*Height, 1)
			y = max(y-h, 0)
			c.Rects = append(c.Rects, Rect{X: x, Y: round(y), W: round(slot - gap), H: round(h), Class: s.Class})
		}
		c.Columns = append(c.Columns, Rect{X: round(float64(i) * slot), W: round(slot), H: Height, Title: b.Title})
	}
	return c
}

// Nice is the least of 1, 2, 2.5, 5 times a power of ten that is not less than v; it is
// 1 for nothing.
func Nice(v float64) float64 {
	if v <= 1 || math.IsNaN(v) || math.IsInf(v, 0) {
		return 1
	}
	base := math.Pow(10, math.Floor(math.Log10(v)))
	for _, m := range []float64{1, 2, 2.5, 5, 10} {
		if m*base >= v && (base > 1 || m != 2.5) {
			return m * base
		}
	}
	return 10 * base
}

func round(f float64) float64 { return math.Round(f*100) / 100 }
