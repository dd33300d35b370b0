package webhook_test

import (
	"os"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outhook/webhook/internal/filter"
)

// What docs/filters.md shows is accepted.
func TestTheFiltersInTheDocumentationCompile(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("docs/filters.md")
	require.NoError(t, err)

	blocks := regexp.MustCompile("(?s)```json\n(.*?)```").FindAllSubmatch(text, -1)
	require.NotEmpty(t, blocks)
	inline := regexp.MustCompile("`(\\{[^`]*\\})`").FindAllSubmatch(text, -1)
	for _, b := range append(blocks, inline...) {
		_, err := filter.Compile(b[1])
		require.NoError(t, err, "%s", b[1])
	}
}
