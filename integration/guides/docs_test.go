package guides_test

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the code of this repository into the guides")

var (
	root   = filepath.Join("..", "..")
	marked = regexp.MustCompile("(?s)<!-- code: (\\S+) (\\S+) -->\n```go\n(.*?)```\n")
	block  = regexp.MustCompile("(?m)^(.*)\n```go$")
	link   = regexp.MustCompile(`\]\(([^)#:\s]+)(#[^)]*)?\)`)
)

// pages are the documents of the repository.
func pages(t *testing.T) []string {
	t.Helper()
	var all []string
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/*/*.md"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		require.NoError(t, err)
		all = append(all, found...)
	}
	return all
}

// region returns a marked part of a file.
func region(t *testing.T, file, name string) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(root, file))
	require.NoError(t, err)
	_, rest, found := strings.Cut(string(raw), "// region: "+name+"\n")
	require.True(t, found, "%s has no region %s", file, name)
	code, _, found := strings.Cut(rest, "// end region")
	require.True(t, found, "%s: region %s has no end", file, name)
	return strings.TrimSpace(code) + "\n"
}

func TestGuidesShowCodeThatIsTested(t *testing.T) {
	t.Parallel()
	for _, page := range pages(t) {
		raw, err := os.ReadFile(page)
		require.NoError(t, err)
		text := string(raw)
		fresh := marked.ReplaceAllStringFunc(text, func(s string) string {
			m := marked.FindStringSubmatch(s)
			code := region(t, m[1], m[2])
			if !*update {
				assert.Equal(t, code, m[3], "%s: the code of %s %s; go test ./integration/guides -update writes it", page, m[1], m[2])
			}
			return "<!-- code: " + m[1] + " " + m[2] + " -->\n```go\n" + code + "```\n"
		})
		if *update && fresh != text {
			require.NoError(t, os.WriteFile(page, []byte(fresh), 0o600))
		}
		if strings.Contains(page, filepath.Join("docs", "guides")) {
			for _, m := range block.FindAllStringSubmatch(fresh, -1) {
				assert.Contains(t, m[1], "<!-- code: ", "%s has Go code that nothing tests", page)
			}
		}
	}
}

func TestLinksLeadSomewhere(t *testing.T) {
	t.Parallel()
	for _, page := range pages(t) {
		raw, err := os.ReadFile(page)
		require.NoError(t, err)
		for _, m := range link.FindAllStringSubmatch(string(raw), -1) {
			_, err := os.Stat(filepath.Join(filepath.Dir(page), m[1]))
			assert.NoError(t, err, "%s links to %s", page, m[1])
		}
	}
}
