package guides_test

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	testFunc  = regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	testName  = regexp.MustCompile("`(?:([a-z][a-z/]*)\\.)?(Test[A-Z]\\w*)`")
	reportRow = regexp.MustCompile(`(?m)^\| (B\d+) \| [^|]+ \| [^|]+ \|$`)
)

// testsOf finds the test functions of the repository, as docs/field-reports.md names them.
func testsOf(t *testing.T) map[string]bool {
	t.Helper()
	found := make(map[string]bool)
	files := os.DirFS(root)
	require.NoError(t, fs.WalkDir(files, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && name != "." && strings.HasPrefix(entry.Name(), ".") {
			return fs.SkipDir
		}
		if entry.IsDir() || !strings.HasSuffix(name, "_test.go") {
			return nil
		}
		source, err := fs.ReadFile(files, name)
		for _, m := range testFunc.FindAllSubmatch(source, -1) {
			found[strings.TrimPrefix(path.Dir(name)+".", "..")+string(m[1])] = true
		}
		return err
	}))
	return found
}

func TestFieldReportsNameTestsThatExist(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile(filepath.Join(root, "docs", "field-reports.md"))
	require.NoError(t, err)
	page, tests := string(raw), testsOf(t)

	for _, m := range testName.FindAllStringSubmatch(page, -1) {
		assert.True(t, tests[strings.Trim(m[0], "`")], "there is no %s", m[0])
	}
	assert.NotRegexp(t, `Test[A-Z]`, testName.ReplaceAllString(page, ""), "a name that is not checked")

	const reports = "B01 B03 B05 B07 B08 B09 B10 B11 B13 B15 B16 B18 B20 B21 B22 B23 B24 B25 B27 B28 B29 B30 " +
		"B32 B33 B35 B36 B38 B39 B41 B42 B44 B45 B47 B48 B50 B51 B53 B55 B56 B58 B59 B60 B62"
	var rows []string
	for _, m := range reportRow.FindAllStringSubmatch(page, -1) {
		rows = append(rows, m[1])
		assert.Regexp(t, "`(?:[a-z/]+\\.)?Test[A-Z0-9]*"+m[1]+`[A-Z]`, m[0], "a test is named by the report's id")
	}
	assert.Equal(t, strings.Fields(reports), rows, "each report has one row, in order")
}
