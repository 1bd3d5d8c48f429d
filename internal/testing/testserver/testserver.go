// Package testserver finds the tests that cannot run because a server is not installed.
package testserver

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Server is a program that tests need, and how they start it.
type Server struct {
	Name     string   // of the program
	Import   string   // path of the package with the functions that start it
	Starters []string // those functions
}

// Require fails if missing says why the server is not installed, with every test that is left out for want of it and the
// remedy. If REDISTEST_ALLOW_LEFT_OUT accepts that, it skips with the same list.
func (s Server) Require(tb testing.TB, missing error) {
	tb.Helper()
	if missing == nil {
		return
	}
	root, rootErr := ModuleRoot()
	if rootErr != nil {
		tb.Fatal(missing, rootErr)
	}
	names, listErr := s.Find(root)
	if listErr != nil {
		tb.Fatal(missing, listErr)
	}
	list := "  " + strings.Join(names, "\n  ")
	if os.Getenv("REDISTEST_ALLOW_LEFT_OUT") != "" {
		tb.Skipf("no %s (%v): these %d tests are left out:\n%s", s.Name, missing, len(names), list)
	}
	tb.Fatalf("no %s (%v): these %d tests are left out:\n%s\n"+
		"Run \"make test\", which installs it, or set REDISTEST_ALLOW_LEFT_OUT=1 to accept that they are left out.",
		s.Name, missing, len(names), list)
}

// Needed ends a test that needs a program if missing says why it is not installed: the test is skipped, or fails when
// REDISTEST_REQUIRE is set.
func Needed(tb testing.TB, program string, missing error) {
	tb.Helper()
	if missing == nil {
		return
	}
	if os.Getenv("REDISTEST_REQUIRE") != "" {
		tb.Fatalf("needs %s: %s cannot run: %v (\"make test\" installs it)", program, tb.Name(), missing)
	}
	tb.Skipf("needs %s: %s is left out: %v (\"make test\" installs it)", program, tb.Name(), missing)
}

// Find names the tests, benchmarks and fuzz targets below root that cannot run without the server, as "dir: name", sorted.
// They are found in the source: a test counts when it, or a function or variable of its directory that it mentions, calls
// one of the starters. Nested modules are included.
func (s Server) Find(root string) ([]string, error) {
	dirs := map[string][]*ast.File{}
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name != root && skipDir(d.Name()) {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") {
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		dirs[filepath.Dir(name)] = append(dirs[filepath.Dir(name)], f)
		return nil
	})
	if err != nil {
		return nil, err
	}

	var names []string
	for dir, files := range dirs {
		rel, err := filepath.Rel(root, dir)
		if err != nil {
			return nil, err
		}
		for _, test := range s.testsThatStart(files) {
			names = append(names, "./"+filepath.ToSlash(rel)+": "+test)
		}
	}
	slices.Sort(names)
	return names, nil
}

func skipDir(name string) bool {
	return strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") || name == "testdata" || name == "vendor"
}

// testsThatStart returns the tests in the files of one directory that reach a starter.
func (s Server) testsThatStart(files []*ast.File) []string {
	mentions := map[string]map[string]bool{} // declaration -> what its body mentions
	reaches := map[string]bool{}
	tests := map[string]bool{}
	for _, f := range files {
		pkg := s.importedAs(f)
		for _, decl := range f.Decls {
			for _, d := range named(decl) {
				uses, starts := s.used(d.node, pkg)
				if mentions[d.name] == nil {
					mentions[d.name] = map[string]bool{}
				}
				for name := range uses {
					mentions[d.name][name] = true
				}
				if starts || pkg == "." && slices.Contains(s.Starters, d.name) {
					reaches[d.name] = true
				}
				tests[d.name] = tests[d.name] || isTest(d.node)
			}
		}
	}

	for grown := true; grown; {
		grown = false
		for name, uses := range mentions {
			if reaches[name] {
				continue
			}
			for used := range uses {
				if reaches[used] {
					reaches[name], grown = true, true
					break
				}
			}
		}
	}

	var names []string
	for name := range reaches {
		if tests[name] {
			names = append(names, name)
		}
	}
	return names
}

// importedAs returns the name by which the file knows the package of the starters, "." when it belongs to it, "" when it does not import it.
func (s Server) importedAs(f *ast.File) string {
	if f.Name.Name == path.Base(s.Import) {
		return "."
	}
	for _, imp := range f.Imports {
		if strings.Trim(imp.Path.Value, `"`) != s.Import {
			continue
		}
		if imp.Name != nil {
			return imp.Name.Name
		}
		return path.Base(s.Import)
	}
	return ""
}

type declared struct {
	name string
	node ast.Node
}

// named returns the functions and package-level variables of a declaration. A method goes by its bare name with a dot before.
func named(decl ast.Decl) []declared {
	switch decl := decl.(type) {
	case *ast.FuncDecl:
		if decl.Recv != nil {
			return []declared{{"." + decl.Name.Name, decl}}
		}
		return []declared{{decl.Name.Name, decl}}
	case *ast.GenDecl:
		var all []declared
		for _, spec := range decl.Specs {
			if v, ok := spec.(*ast.ValueSpec); ok {
				for _, name := range v.Names {
					all = append(all, declared{name.Name, v})
				}
			}
		}
		return all
	}
	return nil
}

// used returns the names that node mentions, those behind a dot with the dot, and whether one of them is a starter of the package
// imported as pkg.
func (s Server) used(node ast.Node, pkg string) (names map[string]bool, starts bool) {
	names = map[string]bool{}
	var visit func(ast.Node) bool
	visit = func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.Ident:
			names[n.Name] = true
		case *ast.SelectorExpr:
			names["."+n.Sel.Name] = true
			if x, ok := n.X.(*ast.Ident); ok && pkg != "" && x.Name == pkg && slices.Contains(s.Starters, n.Sel.Name) {
				starts = true
			}
			ast.Inspect(n.X, visit)
			return false
		}
		return true
	}
	ast.Inspect(node, visit)
	return names, starts
}

func isTest(node ast.Node) bool {
	f, ok := node.(*ast.FuncDecl)
	if !ok || f.Recv != nil || f.Type.Params.NumFields() != 1 {
		return false
	}
	for _, prefix := range []string{"Test", "Benchmark", "Fuzz"} {
		if rest, ok := strings.CutPrefix(f.Name.Name, prefix); ok && f.Name.Name != "TestMain" && (rest == "" || !isLower(rest[0])) {
			return true
		}
	}
	return false
}

func isLower(c byte) bool { return 'a' <= c && c <= 'z' }

// ModuleRoot returns the closest directory with a go.mod, from the working directory upwards.
func ModuleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", errors.New("testserver: no go.mod in the working directory or above")
		}
		dir = up
	}
}

// LeaveToLong skips a test with -short, as make quick runs it: one that waits for seconds in real time, or computes
// for more than one.
func LeaveToLong(tb testing.TB) {
	tb.Helper()
	if testing.Short() {
		tb.Skip("takes seconds: left out with -short")
	}
}
