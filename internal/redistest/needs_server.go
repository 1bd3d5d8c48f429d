package redistest

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
)

// importPath is this package's own.
const importPath = "github.com/railtoken/railtoken/internal/redistest"

// starters are the functions that need redis-server.
var starters = []string{"Start", "StartCluster", "StartSentinel"}

// leftOut names the tests, benchmarks and fuzz targets below root that cannot run without redis-server, as "dir: name", sorted.
// They are found in the source: a test counts when it, or a function or variable of its directory that it mentions, calls
// one of the starters. Nested modules are included.
func leftOut(root string) ([]string, error) {
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
		for _, test := range testsThatStart(files) {
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
func testsThatStart(files []*ast.File) []string {
	mentions := map[string]map[string]bool{} // declaration -> what its body mentions
	reaches := map[string]bool{}
	tests := map[string]bool{}
	for _, f := range files {
		pkg := importedAs(f)
		for _, decl := range f.Decls {
			for _, d := range named(decl) {
				uses, starts := used(d.node, pkg)
				if mentions[d.name] == nil {
					mentions[d.name] = map[string]bool{}
				}
				for name := range uses {
					mentions[d.name][name] = true
				}
				if starts || pkg == "." && slices.Contains(starters, d.name) {
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

// importedAs returns the name by which the file knows this package, "." when it belongs to it, "" when it does not import it.
func importedAs(f *ast.File) string {
	if f.Name.Name == path.Base(importPath) {
		return "."
	}
	for _, imp := range f.Imports {
		if strings.Trim(imp.Path.Value, `"`) != importPath {
			continue
		}
		if imp.Name != nil {
			return imp.Name.Name
		}
		return path.Base(importPath)
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
func used(node ast.Node, pkg string) (names map[string]bool, starts bool) {
	names = map[string]bool{}
	var visit func(ast.Node) bool
	visit = func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.Ident:
			names[n.Name] = true
		case *ast.SelectorExpr:
			names["."+n.Sel.Name] = true
			if x, ok := n.X.(*ast.Ident); ok && pkg != "" && x.Name == pkg && slices.Contains(starters, n.Sel.Name) {
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

// moduleRoot returns the closest directory with a go.mod, from the working directory upwards.
func moduleRoot() (string, error) {
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
			return "", errors.New("redistest: no go.mod in the working directory or above")
		}
		dir = up
	}
}
