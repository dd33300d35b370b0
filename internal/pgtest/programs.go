package pgtest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
)

// BinEnv names the environment variable with the directory of PostgreSQL's programs,
// for machines where they are in none of the usual places.
const BinEnv = "PGTEST_BINDIR"

// ErrNotInstalled is returned when no PostgreSQL server programs are found. The error
// around it holds the command that installs them.
var ErrNotInstalled = errors.New("PostgreSQL is not installed")

type programs struct{ initdb, postgres string }

// Installed reports whether StartServer would find PostgreSQL's programs, and
// otherwise returns an error that is ErrNotInstalled.
func Installed() error {
	_, err := findPrograms()
	return err
}

// findPrograms looks in $PGTEST_BINDIR alone where it is set, otherwise in the
// newest version of the places where packages put them, then in PATH.
func findPrograms() (programs, error) {
	if dir := os.Getenv(BinEnv); dir != "" {
		p := programsIn(dir)
		if !p.exist() {
			return programs{}, fmt.Errorf("%w in %s=%s: install it with `%s`", ErrNotInstalled, BinEnv, dir, installCommand())
		}
		return p, nil
	}
	for _, dir := range packageDirs() {
		if p := programsIn(dir); p.exist() {
			return p, nil
		}
	}
	if initdb, err := exec.LookPath("initdb"); err == nil {
		if target, err := filepath.EvalSymlinks(initdb); err == nil {
			initdb = target // distributions link single programs into /usr/bin
		}
		if p := programsIn(filepath.Dir(initdb)); p.exist() {
			return p, nil
		}
	}
	return programs{}, fmt.Errorf("%w: install it with `%s`, or set %s", ErrNotInstalled, installCommand(), BinEnv)
}

func programsIn(dir string) programs {
	return programs{initdb: filepath.Join(dir, "initdb"), postgres: filepath.Join(dir, "postgres")}
}

func (p programs) exist() bool {
	return isProgram(p.initdb) && isProgram(p.postgres)
}

func isProgram(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

// packageDirs lists the version directories of Debian, Red Hat and Homebrew packages,
// newest first.
func packageDirs() []string {
	type versioned struct {
		dir     string
		version int
	}
	var found []versioned
	for _, place := range []struct{ prefix, suffix string }{
		{"/usr/lib/postgresql/", "/bin"},
		{"/usr/pgsql-", "/bin"},
		{"/opt/homebrew/opt/postgresql@", "/bin"},
		{"/usr/local/opt/postgresql@", "/bin"},
	} {
		dirs, _ := filepath.Glob(place.prefix + "*" + place.suffix) // the pattern is well formed
		for _, dir := range dirs {
			version, err := strconv.Atoi(dir[len(place.prefix) : len(dir)-len(place.suffix)])
			if err == nil {
				found = append(found, versioned{dir, version})
			}
		}
	}
	slices.SortStableFunc(found, func(a, b versioned) int { return b.version - a.version })
	dirs := make([]string, len(found))
	for i, f := range found {
		dirs[i] = f.dir
	}
	return dirs
}

func installCommand() string {
	if runtime.GOOS == "darwin" {
		return "brew install postgresql@17"
	}
	for _, manager := range []struct{ program, command string }{
		{"apt-get", "sudo apt-get install -y postgresql"},
		{"dnf", "sudo dnf install -y postgresql-server"},
		{"apk", "sudo apk add postgresql"},
	} {
		if _, err := exec.LookPath(manager.program); err == nil {
			return manager.command
		}
	}
	return "sudo apt-get install -y postgresql"
}
