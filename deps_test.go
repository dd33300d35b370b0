package webhook_test

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// libraryDeps are the modules that importing the library may pull in. A new one is a
// decision about every user's go.sum and belongs here and into the CHANGELOG.
var libraryDeps = []string{
	"github.com/google/uuid",
	"github.com/jackc/pgpassfile",
	"github.com/jackc/pgservicefile",
	"github.com/jackc/pgx/v5",
	"github.com/jackc/puddle/v2",
	"github.com/outhook/webhook",
	"github.com/sony/gobreaker/v2",
	"golang.org/x/net",
	"golang.org/x/sync",
	"golang.org/x/text",
	"golang.org/x/time",
}

// pgx is a database driver: the root must bring none, and a store only its own.
const pgx = "github.com/jackc/pgx/v5"

func TestTheLibraryPullsInOnlyWhatItNeeds(t *testing.T) {
	t.Parallel()

	for _, pkg := range []struct {
		dir      string
		database string // the driver it may import
	}{
		{dir: "."},
		{dir: "./admin"},
		{dir: "./store/postgres", database: pgx},
		{dir: "./store/sqlite"},
		{dir: "./verify"},
	} {
		t.Run(pkg.dir, func(t *testing.T) {
			t.Parallel()
			for _, dep := range depsOf(t, pkg.dir) {
				if dep.module == "" {
					assert.NotEqual(t, "testing", dep.importPath, "test code in the library")
					continue
				}
				assert.Contains(t, libraryDeps, dep.module, "imported as %s", dep.importPath)
				assert.NotContains(t, dep.importPath, "/internal/pgtest")
				if dep.module == pgx {
					assert.Equal(t, pkg.database, dep.module, "a foreign driver")
				}
			}
		})
	}
}

type dependency struct{ importPath, module string }

// depsOf lists all packages that dir's import, the standard library's without module.
// A directory that does not exist yet has none.
func depsOf(t *testing.T, dir string) []dependency {
	t.Helper()

	if _, err := os.Stat(dir); os.IsNotExist(err) {
		return nil
	}
	cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{.ImportPath}} {{with .Module}}{{.Path}}{{end}}", dir)
	// Without the workspace, as at a user's.
	cmd.Env = append(os.Environ(), "GOWORK=off")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(t, err, "%s", &stderr)

	var deps []dependency
	for line := range strings.Lines(string(out)) {
		importPath, module, _ := strings.Cut(strings.TrimSpace(line), " ")
		deps = append(deps, dependency{importPath, module})
	}
	return deps
}
