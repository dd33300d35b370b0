// Package migration loads a store's versioned SQL, puts the names that the host
// has chosen into it, and works out which steps lead from one version to
// another. It knows no database: running the steps is the store's business.
//
// # Files
//
// A migration is a pair of files, NNNN_name.up.sql and NNNN_name.down.sql,
// numbered from 0001 without gaps. The first line of each declares how it runs:
//
//	-- mode: transactional
//	-- mode: online
//
// A transactional migration is applied, and recorded, in one transaction. The
// statements of an online one run one by one outside of a transaction (building
// an index concurrently cannot be done inside one), so each of them must be
// repeatable: after an interruption all are run again.
//
// A statement ends with a semicolon at the end of a line that is followed by an
// empty line or by the end of the file. Nothing else is looked at, so bodies of
// functions and triggers need no quoting, as long as they hold no empty line
// after a semicolon.
//
// Names are written {{like_this}} and replaced by the values given to [Load].
package migration

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// ErrNewer is returned by [Plan] when the database has a version that this code
// does not know.
var ErrNewer = errors.New("migration: database is newer than the code")

// Migration is one step between two neighbouring versions of a schema.
type Migration struct {
	// Version counts from 1.
	Version int
	// Name is the file's name without number and suffix.
	Name string
	Up   Script
	Down Script
}

// Script is what a migration does in one direction.
type Script struct {
	// Online is true when the statements run one by one outside of a
	// transaction and may be repeated.
	Online bool
	// Statements are complete, without a trailing semicolon.
	Statements []string
}

// Step is a migration in the direction in which it is to be run.
type Step struct {
	Migration
	// Reverse is true when the step goes down, from Version to Version-1.
	Reverse bool
}

// Script returns the statements to run.
func (s Step) Script() Script {
	if s.Reverse {
		return s.Down
	}
	return s.Up
}

// String names the step in errors and exports.
func (s Step) String() string {
	direction := "up"
	if s.Reverse {
		direction = "down"
	}
	return fmt.Sprintf("%04d_%s.%s", s.Version, s.Name, direction)
}

var fileName = regexp.MustCompile(`^(\d{4})_([a-z0-9_]+)\.(up|down)\.sql$`)

// Load reads all migrations in the root of fsys, in ascending order of version,
// with names put in by [Render]. Both files of each version must be there.
func Load(fsys fs.FS, names map[string]string) ([]Migration, error) {
	entries, err := fs.ReadDir(fsys, ".")
	if err != nil {
		return nil, fmt.Errorf("migration: listing files: %w", err)
	}

	scripts := make(map[int]int) // version -> number of its files seen
	var all []Migration
	for _, entry := range entries { // sorted by name, so ascending by version
		part := fileName.FindStringSubmatch(entry.Name())
		if part == nil {
			return nil, fmt.Errorf("migration: %s is not named NNNN_name.up.sql or NNNN_name.down.sql", entry.Name())
		}
		version, err := strconv.Atoi(part[1])
		if err != nil {
			return nil, fmt.Errorf("migration: %s: %w", entry.Name(), err)
		}
		text, err := fs.ReadFile(fsys, entry.Name())
		if err != nil {
			return nil, fmt.Errorf("migration: reading %s: %w", entry.Name(), err)
		}
		script, err := parse(string(text), names)
		if err != nil {
			return nil, fmt.Errorf("migration: %s: %w", entry.Name(), err)
		}

		if scripts[version] == 0 {
			all = append(all, Migration{Version: version, Name: part[2]})
		}
		scripts[version]++
		m := &all[len(all)-1]
		if m.Version != len(all) || m.Name != part[2] {
			return nil, fmt.Errorf("migration: %s breaks the numbering", entry.Name())
		}
		if part[3] == "up" {
			m.Up = script
		} else {
			m.Down = script
		}
	}
	for _, m := range all {
		if scripts[m.Version] != 2 {
			return nil, fmt.Errorf("migration: %04d_%s lacks its up or its down file", m.Version, m.Name)
		}
	}
	return all, nil
}

func parse(text string, names map[string]string) (Script, error) {
	first, rest, _ := strings.Cut(text, "\n")
	var script Script
	switch strings.TrimSpace(first) {
	case "-- mode: transactional":
	case "-- mode: online":
		script.Online = true
	default:
		return Script{}, errors.New(`first line is neither "-- mode: transactional" nor "-- mode: online"`)
	}
	rendered, err := Render(rest, names)
	if err != nil {
		return Script{}, err
	}
	for part := range strings.SplitSeq(strings.TrimSpace(rendered)+"\n\n", ";\n\n") {
		part = strings.TrimSpace(part)
		if part == "" {
			continue
		}
		script.Statements = append(script.Statements, part)
	}
	if len(script.Statements) == 0 {
		return Script{}, errors.New("holds no statement")
	}
	return script, nil
}

var placeholder = regexp.MustCompile(`\{\{([a-z_]+)\}\}`)

// Render replaces every {{name}} in sql by its value, and refuses a name that
// has none. The values are put in as they are: quoting is up to the caller.
func Render(sql string, names map[string]string) (string, error) {
	var unknown string
	rendered := placeholder.ReplaceAllStringFunc(sql, func(match string) string {
		value, ok := names[match[2:len(match)-2]]
		if !ok {
			unknown = match
		}
		return value
	})
	if unknown != "" {
		return "", fmt.Errorf("migration: no value for %s", unknown)
	}
	return rendered, nil
}

// Plan returns the steps that lead from version current to version target, in
// the order in which they are to be run; none when the two are equal. It fails
// with [ErrNewer] when current is not among the migrations.
func Plan(all []Migration, current, target int) ([]Step, error) {
	latest := len(all)
	if current > latest {
		return nil, fmt.Errorf("%w: it has version %d, the code knows %d", ErrNewer, current, latest)
	}
	if target < 0 || target > latest {
		return nil, fmt.Errorf("migration: no version %d: versions are 0 to %d", target, latest)
	}
	var steps []Step
	for _, m := range all[min(current, target):max(current, target)] {
		steps = append(steps, Step{Migration: m, Reverse: target < current})
	}
	if target < current {
		slices.Reverse(steps)
	}
	return steps, nil
}

// Dialect is the SQL with which a store keeps its history of migrations, for
// [Export]. Its statements carry no trailing semicolon.
type Dialect struct {
	// Prepare makes the place where the history is kept, if it is missing.
	Prepare []string
	// Begin and Commit enclose a transactional step.
	Begin, Commit string
	// Record writes the step into the history, or removes it when the step
	// goes down.
	Record func(Step) string
}

// Export writes the steps to w as plain SQL that other migration tools can run,
// with the statements that keep the history, so that the store's own Migrate
// finds nothing left to do.
func Export(w io.Writer, d Dialect, steps []Step) error {
	var b strings.Builder
	for _, statement := range d.Prepare {
		b.WriteString(statement + ";\n\n")
	}
	for _, step := range steps {
		script := step.Script()
		b.WriteString("-- " + step.String() + "\n\n")
		if script.Online {
			b.WriteString("-- Run these statements one by one, outside of a transaction.\n\n")
		} else {
			b.WriteString(d.Begin + ";\n\n")
		}
		for _, statement := range script.Statements {
			b.WriteString(statement + ";\n\n")
		}
		b.WriteString(d.Record(step) + ";\n\n")
		if !script.Online {
			b.WriteString(d.Commit + ";\n\n")
		}
	}
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("migration: writing SQL: %w", err)
	}
	return nil
}
