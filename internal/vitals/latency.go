package vitals

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"time"
)

// cells is how many cells a histogram has: four to a doubling from 1 ms on, so that
// a percentile is wrong by a tenth at most, up to 65 s.
const cells = 64

// Latencies is a histogram of latencies on a logarithmic scale.
type Latencies [cells]uint32

func cellOf(d time.Duration) int {
	ms := float64(d) / float64(time.Millisecond)
	if ms <= 1 {
		return 0
	}
	return min(int(4*math.Log2(ms)), cells-1)
}

// middle is the latency that stands for a cell.
func middle(cell int) time.Duration {
	return time.Duration(math.Exp2((float64(cell)+0.5)/4) * float64(time.Millisecond))
}

// Add counts one latency.
func (l *Latencies) Add(d time.Duration) { l[cellOf(d)]++ }

func (l *Latencies) merge(other *Latencies) {
	for i := range l {
		l[i] += other[i]
	}
}

// Count is how many latencies were counted.
func (l *Latencies) Count() (n int64) {
	for _, c := range l {
		n += int64(c)
	}
	return n
}

// Percentile returns the latency that the given part of all does not exceed, to
// within a tenth; zero when there are none.
func (l *Latencies) Percentile(part float64) time.Duration {
	if l.Count() == 0 {
		return 0
	}
	return middle(int(l.cell(part)))
}

// cell is the cell of a percentile of latencies of which there are some.
func (l *Latencies) cell(part float64) uint8 {
	rank := max(int64(math.Ceil(part*float64(l.Count()))), 1)
	for i, c := range l {
		if rank -= int64(c); rank <= 0 {
			return uint8(i)
		}
	}
	return cells - 1
}

// MarshalJSON writes pairs of cell and count.
func (l Latencies) MarshalJSON() ([]byte, error) { return l.append(make([]byte, 0, 64)), nil }

func (l *Latencies) append(text []byte) []byte {
	text = append(text, '[')
	some := false
	for i, c := range l {
		if c == 0 {
			continue
		}
		if some {
			text = append(text, ',')
		}
		some = true
		text = append(strconv.AppendInt(text, int64(i), 10), ',')
		text = strconv.AppendUint(text, uint64(c), 10)
	}
	return append(text, ']')
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (l *Latencies) UnmarshalJSON(text []byte) error {
	var pairs []uint32
	if err := json.Unmarshal(text, &pairs); err != nil {
		return fmt.Errorf("read latencies: %w", err)
	}
	*l = Latencies{}
	for ; len(pairs) >= 2; pairs = pairs[2:] {
		if pairs[0] < cells {
			l[pairs[0]] += pairs[1]
		}
	}
	return nil
}
