package guides_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// member is a field or a method of an exported type of the root package.
type member struct {
	doc    string
	isBool bool
}

// library is what pages about incidents may name.
type library struct {
	members map[string]member // "Type.Name"
	strings map[string]bool   // string literals of the library: notices, log lines, classes, reasons
	metrics map[string]bool   // and their labels
	alerts  map[string]bool
	tests   map[string]bool
}

func readLibrary(t *testing.T) *library {
	t.Helper()
	l := &library{members: make(map[string]member), strings: make(map[string]bool), metrics: make(map[string]bool), alerts: make(map[string]bool)}
	for _, file := range sources(t, root) {
		l.readMembers(file)
		readStrings(file, l.strings)
	}
	for _, dir := range []string{"otelwebhook", "canary"} {
		for _, file := range sources(t, filepath.Join(root, dir)) {
			readStrings(file, l.metrics)
		}
	}
	rules, err := os.ReadFile(filepath.Join(root, "examples", "prometheus", "alerts.yml"))
	require.NoError(t, err)
	for _, m := range regexp.MustCompile(`alert: (\w+)`).FindAllSubmatch(rules, -1) {
		l.alerts[string(m[1])] = true
	}
	l.tests = testsOf(t)
	return l
}

// sources parses the files of a package, without its tests.
func sources(t *testing.T, dir string) []*ast.File {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	require.NoError(t, err)
	var files []*ast.File
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments|parser.SkipObjectResolution)
		require.NoError(t, err)
		files = append(files, file)
	}
	return files
}

func readStrings(file *ast.File, into map[string]bool) {
	ast.Inspect(file, func(n ast.Node) bool {
		if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			if text, err := strconv.Unquote(lit.Value); err == nil {
				into[text] = true
			}
		}
		return true
	})
}

func (l *library) readMembers(file *ast.File) {
	for _, decl := range file.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			if d.Recv != nil {
				l.members[typeName(d.Recv.List[0].Type)+"."+d.Name.Name] = member{doc: d.Doc.Text()}
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				if s, ok := spec.(*ast.TypeSpec); ok {
					l.readType(s)
				}
			}
		}
	}
}

func (l *library) readType(spec *ast.TypeSpec) {
	s, ok := spec.Type.(*ast.StructType)
	if !ok {
		return
	}
	doc := ""
	for _, field := range s.Fields.List {
		if text := field.Doc.Text(); text != "" {
			doc = text // which holds for the fields below it that have none
		}
		kind, _ := field.Type.(*ast.Ident)
		for _, name := range field.Names {
			l.members[spec.Name.Name+"."+name.Name] = member{doc: doc, isBool: kind != nil && kind.Name == "bool"}
		}
	}
}

func typeName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return typeName(e.X)
	case *ast.IndexExpr:
		return typeName(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}

var (
	codeSpan    = regexp.MustCompile("`([^`\n]+)`")
	settingRow  = regexp.MustCompile("(?m)^\\| `(\\w+\\.\\w+)` \\| ([^|]*) \\| ([^|]*) \\|$")
	isMember    = regexp.MustCompile(`^[A-Z]\w+\.[A-Z]\w+$`)
	isMetric    = regexp.MustCompile(`^webhook\.[a-z_.]+$`)
	isAlert     = regexp.MustCompile(`^Webhook[A-Z]\w+$`)
	isNotice    = regexp.MustCompile(`^(endpoint|delivery|secret)\.[a-z_0-9]+$`)
	isCommand   = regexp.MustCompile(`^(webhook |--)`)
	isHeader    = regexp.MustCompile(`^(webhook-[a-z]+(: \w+)?|Retry-After)$`)
	isFlagsOrGo = regexp.MustCompile(`^(flapped=true|VACUUM|REINDEX INDEX CONCURRENTLY|Enqueue|\*\.[a-z.]+|[A-Z]+|resume|503|429)$`)
	isTest      = regexp.MustCompile(`^([a-z/]+\.)?Test[A-Z]\w*$`)
)

// check says what is wrong with a name between backticks.
func (l *library) check(name string) string {
	known := func(ok bool) string {
		if ok {
			return ""
		}
		return "is not in the library"
	}
	switch {
	case isTest.MatchString(name):
		return known(l.tests[name])
	case isMember.MatchString(name):
		_, ok := l.members[name]
		return known(ok)
	case isMetric.MatchString(name):
		return known(l.metrics[name])
	case isAlert.MatchString(name):
		return known(l.alerts[name])
	case isNotice.MatchString(name), strings.HasPrefix(name, "webhook: "):
		return known(l.strings[name])
	case isCommand.MatchString(name), isHeader.MatchString(name), isFlagsOrGo.MatchString(name):
		return "" // cmd/webhook checks commands against themselves
	case name == "DefaultRetrySchedule":
		return ""
	default: // states, classes, reasons, values of labels
		return known(l.strings[name] || l.metrics[name])
	}
}

func TestPagesAboutIncidentsNameWhatIsThere(t *testing.T) {
	t.Parallel()
	l := readLibrary(t)
	index, err := os.ReadFile(filepath.Join(root, "docs", "incidents", "README.md"))
	require.NoError(t, err)
	found, err := filepath.Glob(filepath.Join(root, "docs", "incidents", "*.md"))
	require.NoError(t, err)
	assert.Greater(t, len(found), 15)

	for _, page := range found {
		raw, err := os.ReadFile(page)
		require.NoError(t, err)
		text := string(raw)
		for _, m := range codeSpan.FindAllStringSubmatch(text, -1) {
			problem := l.check(m[1])
			assert.Empty(t, problem, "%s: `%s` %s", page, m[1], problem)
		}
		if filepath.Base(page) == "README.md" {
			continue
		}
		assert.Contains(t, string(index), "]("+filepath.Base(page)+")", "the index leads to %s", page)
		assert.Equal(t, []string{"What you see", "Why", "What the library does by itself", "What to do", "How to tell that it is over"}, headings(text), page)
		rows := settingRow.FindAllStringSubmatch(text, -1)
		assert.NotEmpty(t, rows, "%s has a table of settings", page)
		for _, row := range rows {
			checkDefault(t, page, row[1], strings.Trim(row[2], " `"), l.members[row[1]])
		}
	}
}

// checkDefault checks that a field's comment says the same default as a page.
func checkDefault(t *testing.T, page, name, value string, m member) {
	t.Helper()
	if m.isBool {
		assert.Equal(t, "no", value, "%s: %s", page, name)
		return
	}
	doc := strings.Join(strings.Fields(m.doc), " ")
	pattern := `(^|[^\w.,])` + regexp.QuoteMeta(value) + `($|[^\w])`
	assert.Regexp(t, pattern, doc, "%s: the default of %s", page, name)
}

func headings(text string) []string {
	var all []string
	for line := range strings.SplitSeq(text, "\n") {
		if title, ok := strings.CutPrefix(line, "## "); ok {
			all = append(all, title)
		}
	}
	return all
}

func TestEveryAlertAndNoticeLeadsToAnIncident(t *testing.T) {
	t.Parallel()
	l := readLibrary(t)
	index, err := os.ReadFile(filepath.Join(root, "docs", "incidents", "README.md"))
	require.NoError(t, err)
	for name := range l.alerts {
		assert.Contains(t, string(index), "`"+name+"`")
	}
	for text := range l.strings {
		if isNotice.MatchString(text) {
			assert.Contains(t, string(index), "`"+text+"`")
		}
	}
}
