package surface_test

import (
	"flag"
	"fmt"
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the lists in testdata anew")

// most is how many names a package may export: constants, variables, functions and types.
var most = map[string]int{"locking": 46, "middleware": 53, "delayqueue": 40, "items": 25, "worker": 45, "fence": 45}

const root = "../../.."

func TestExportedNamesAreTheListed(t *testing.T) {
	listed := map[string]bool{}
	for _, dir := range publicPackages(t) {
		names, members := exported(t, filepath.Join(root, dir))
		if n, ok := most[dir]; ok && len(names) > n {
			t.Errorf("package %s exports %d names; at most %d are meant", dir, len(names), n)
		}
		file := filepath.Join("testdata", strings.ReplaceAll(dir, "/", "-")+".txt")
		listed[file] = true
		got := strings.Join(slices.Concat(names, members), "\n") + "\n"
		if *update {
			if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
				t.Fatal(err)
			}
			continue
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Errorf("package %s has no list: %v; -update writes it", dir, err)
			continue
		}
		for _, line := range difference(string(want), got) {
			t.Errorf("package %s: %s; if that is meant, -update writes the list anew", dir, line)
		}
	}
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if !listed[file] {
			t.Errorf("%s lists a package that does not exist", file)
		}
	}
	for dir := range most {
		if file := filepath.Join("testdata", dir+".txt"); !listed[file] {
			t.Errorf("package %s has a limit and does not exist", dir)
		}
	}
}

// publicPackages returns the directories of this module that others can import, without those of nested modules.
func publicPackages(t *testing.T) []string {
	t.Helper()
	dirs := map[string]bool{}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			_, module := os.Stat(filepath.Join(path, "go.mod"))
			name := entry.Name()
			if path != root && (module == nil || name == "internal" || name == "testdata" || strings.HasPrefix(name, ".")) {
				return filepath.SkipDir
			}
			return nil
		}
		if filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.PackageClauseOnly)
		if err != nil {
			return err
		}
		if file.Name.Name != "main" {
			dir, err := filepath.Rel(root, filepath.Dir(path))
			if err != nil {
				return err
			}
			dirs[filepath.ToSlash(dir)] = true
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	delete(dirs, ".") // the module's own page, without names
	return slices.Sorted(maps.Keys(dirs))
}

// exported returns the exported names of the package in a directory, and the methods and fields of its types.
func exported(t *testing.T, dir string) (names, members []string) {
	t.Helper()
	fset := token.NewFileSet()
	paths, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	var files []*ast.File
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(fset, path, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	pkg, err := doc.NewFromFiles(fset, files, dir)
	if err != nil {
		t.Fatal(err)
	}
	add := func(kind string, found ...string) {
		for _, name := range found {
			if token.IsExported(name) {
				names = append(names, kind+" "+name)
			}
		}
	}
	values := func(kind string, found []*doc.Value) {
		for _, value := range found {
			add(kind, value.Names...)
		}
	}
	functions := func(found []*doc.Func) {
		for _, f := range found {
			add("func", f.Name)
		}
	}
	values("const", pkg.Consts)
	values("var", pkg.Vars)
	functions(pkg.Funcs)
	for _, typ := range pkg.Types {
		add("type", typ.Name)
		values("const", typ.Consts)
		values("var", typ.Vars)
		functions(typ.Funcs)
		for _, m := range typ.Methods {
			members = append(members, fmt.Sprintf("method %s.%s", typ.Name, m.Name))
		}
		members = append(members, fields(typ)...)
	}
	slices.Sort(names)
	slices.Sort(members)
	return names, members
}

// fields returns the exported fields of a struct or methods of an interface, and what either embeds.
func fields(typ *doc.Type) (members []string) {
	for _, spec := range typ.Decl.Specs {
		var list *ast.FieldList
		kind := "field"
		switch of := spec.(*ast.TypeSpec).Type.(type) {
		case *ast.StructType:
			list = of.Fields
		case *ast.InterfaceType:
			list, kind = of.Methods, "method"
		default:
			continue
		}
		for _, field := range list.List {
			if len(field.Names) == 0 {
				members = append(members, fmt.Sprintf("embedded %s.%s", typ.Name, types.ExprString(field.Type)))
			}
			for _, name := range field.Names {
				if name.IsExported() {
					members = append(members, fmt.Sprintf("%s %s.%s", kind, typ.Name, name.Name))
				}
			}
		}
	}
	return members
}

// difference returns a sentence for each line that is in one of two lists only.
func difference(want, got string) (sentences []string) {
	before, after := strings.Split(want, "\n"), strings.Split(got, "\n")
	for _, line := range before {
		if !slices.Contains(after, line) {
			sentences = append(sentences, line+" is listed and no longer exported")
		}
	}
	for _, line := range after {
		if !slices.Contains(before, line) {
			sentences = append(sentences, line+" is exported and not listed")
		}
	}
	return sentences
}
