//go:build long

package crash_test

import (
	"slices"
	"testing"
)

// Six rounds of every point, with further kills at random: 60 processes on each
// database.
func TestManyKilledProcessesLoseNothing(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{onPostgres, onSQLite} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			var points []point
			for range 6 {
				points = slices.Concat(points, killPoints, []point{anywhere, anywhere, anywhere})
			}
			killAndCount(t, kind, points)
		})
	}
}
