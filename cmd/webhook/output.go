package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/google/uuid"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/outhook/webhook"
)

// printJSON prints one value, indented for people who look at it nevertheless.
func (a *app) printJSON(v any) error {
	e := json.NewEncoder(a.out)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// printLine prints one value on one line.
func (a *app) printLine(v any) error { return json.NewEncoder(a.out).Encode(v) }

// table prints rows below a heading.
func (a *app) printTable(heading string, rows func(row func(cells ...any))) error {
	w := tabwriter.NewWriter(a.out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, strings.ReplaceAll(heading, "|", "\t"))
	rows(func(cells ...any) {
		for i, c := range cells {
			if i > 0 {
				io.WriteString(w, "\t")
			}
			io.WriteString(w, visible(fmt.Sprint(c)))
		}
		io.WriteString(w, "\n")
	})
	return w.Flush()
}

// visible keeps what a stranger wrote from moving the cursor or hiding text.
func visible(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '\uFFFD'
		}
		return r
	}, s)
}

// isTerminal reports whether a writer is a terminal.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// colored reports whether to print in colour.
func (a *app) colored() bool {
	switch a.color {
	case "always":
		return true
	case "never":
		return false
	}
	return isTerminal(a.out) && a.getenv("NO_COLOR") == "" && a.getenv("TERM") != "dumb"
}

// The colours, as in ECMA-48.
const (
	red    = "31"
	green  = "32"
	yellow = "33"
	cyan   = "36"
	faint  = "2"
)

func (a *app) paint(color, text string) string {
	if !a.colored() || text == "" {
		return text
	}
	return "\x1b[" + color + "m" + text + "\x1b[0m"
}

func when(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format("2006-01-02 15:04:05")
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// tenantFlag limits a command to one tenant.
type tenantFlag struct{ name string }

func (f *tenantFlag) register(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.name, "tenant", "", "only what belongs to this tenant (default: all)")
}

func (f *tenantFlag) scope() webhook.Scope {
	if f.name == "" {
		return webhook.AllTenants()
	}
	return webhook.TenantScope(f.name)
}

func parseID(what, text string) (uuid.UUID, error) {
	id, err := uuid.Parse(text)
	if err != nil {
		return uuid.Nil, usagef("%s: %q is not an id", what, text)
	}
	return id, nil
}

// timeFlag is a moment: an RFC 3339 time or date, or how long ago.
type timeFlag struct{ at time.Time }

func (f *timeFlag) Type() string { return "time" }

func (f *timeFlag) String() string {
	if f.at.IsZero() {
		return ""
	}
	return f.at.Format(time.RFC3339Nano)
}

func (f *timeFlag) Set(text string) error {
	if d, err := time.ParseDuration(text); err == nil {
		if d < 0 {
			return fmt.Errorf("%q is in the future", text)
		}
		f.at = time.Now().Add(-d).UTC()
		return nil
	}
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05", "2006-01-02T15:04", "2006-01-02 15:04:05", time.DateOnly} {
		if at, err := time.Parse(layout, text); err == nil {
			f.at = at.UTC()
			return nil
		}
	}
	return fmt.Errorf("%q is neither a time (2026-01-31T18:00:00Z, 2026-01-31) nor how long ago (36h)", text)
}

// words lists what a flag may be.
func words(list []string) string {
	last := len(list) - 1
	return strings.Join(list[:last], ", ") + " or " + list[last]
}

// completeWords lets shells complete a flag that is one of some words.
func completeWords(cmd *cobra.Command, flag string, list []string) {
	_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(list, cobra.ShellCompDirectiveNoFileComp))
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
