package guides_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// undocumented gathers what has no comment.
type undocumented struct {
	files *token.FileSet
	names []string
	seen  int
}

func (u *undocumented) want(documented bool, at token.Pos, name string) {
	u.seen++
	if !documented {
		u.names = append(u.names, u.files.Position(at).String()+": "+name)
	}
}

// Every exported name of every module has a comment, which revive (.golangci.yml) asks for
// as far as types, functions, methods, constants and variables go; methods of interfaces
// and settings as well.
func TestEveryExportedNameIsDocumented(t *testing.T) {
	t.Parallel()
	u := &undocumented{files: token.NewFileSet()}
	require.NoError(t, filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && name != root && (strings.HasPrefix(entry.Name(), ".") || entry.Name() == "internal" || entry.Name() == "bin"):
			return fs.SkipDir
		case entry.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(u.files, name, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err == nil && file.Name.Name != "main" {
			u.file(file)
		}
		return err
	}))

	assert.Greater(t, u.seen, 1000)
	assert.Empty(t, u.names)
}

func (u *undocumented) file(file *ast.File) {
	for _, decl := range file.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			if d.Name.IsExported() && (d.Recv == nil || ast.IsExported(typeName(d.Recv.List[0].Type))) && d.Name.Name != "Error" && d.Name.Name != "Unwrap" {
				u.want(d.Doc != nil, d.Pos(), d.Name.Name)
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				u.spec(d, spec)
			}
		}
	}
}

func (u *undocumented) spec(d *ast.GenDecl, spec ast.Spec) {
	switch s := spec.(type) {
	case *ast.ValueSpec:
		for _, name := range s.Names {
			if name.IsExported() {
				u.want(d.Doc != nil || s.Doc != nil || s.Comment != nil, s.Pos(), name.Name)
			}
		}
	case *ast.TypeSpec:
		if !s.Name.IsExported() {
			return
		}
		u.want(d.Doc != nil || s.Doc != nil, s.Pos(), s.Name.Name)
		switch x := s.Type.(type) {
		case *ast.InterfaceType:
			if len(x.Methods.List) > 1 { // of one, the type's comment tells
				u.fields(s.Name.Name, x.Methods)
			}
		case *ast.StructType:
			if isSettings(s.Name.Name) {
				u.fields(s.Name.Name, x.Fields)
			}
		}
	}
}

// isSettings reports whether a type is one that a user fills in.
func isSettings(name string) bool {
	for _, suffix := range []string{"Config", "Options", "Policy", "Limits"} {
		if strings.HasSuffix(name, suffix) {
			return true
		}
	}
	return name == "Event" || name == "EndpointParams" || name == "EndpointRetry" || name == "ReplayJobRequest"
}

// fields that stand together may share a comment above the first of them.
func (u *undocumented) fields(of string, list *ast.FieldList) {
	told, last := false, 0
	for _, f := range list.List {
		apart := u.files.Position(f.Pos()).Line > last+1
		last = u.files.Position(f.End()).Line
		told = f.Doc != nil || f.Comment != nil || told && !apart
		for _, name := range f.Names {
			if name.IsExported() {
				u.want(told, f.Pos(), of+"."+name.Name)
			}
		}
	}
}
