package railtoken_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// productFiles calls do for each Go file of the product, except those of one package.
func productFiles(t *testing.T, except string, do func(path string, file *ast.File)) {
	t.Helper()
	beside := []string{"bench", "examples", "tools", "internal/testing", "internal/verify", except}
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (slices.Contains(beside, path) || strings.HasPrefix(d.Name(), ".") && path != "."):
			return fs.SkipDir
		case d.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err == nil {
			do(path, file)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// text returns the value of a string literal, and an empty string for anything else.
func text(n ast.Node) string {
	if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
		s, _ := strconv.Unquote(lit.Value)
		return s
	}
	return ""
}

// called returns the name of the function that an expression calls, without its package or receiver.
func called(n ast.Node) string {
	call, ok := n.(*ast.CallExpr)
	if !ok {
		return ""
	}
	switch f := call.Fun.(type) {
	case *ast.Ident:
		return f.Name
	case *ast.SelectorExpr:
		return f.Sel.Name
	}
	return ""
}

var (
	asynqKey  = regexp.MustCompile(`^asynq:[^ ]`)
	asynqKind = regexp.MustCompile(`^(pending|active|lease|retry|scheduled|archived|completed|paused|t:)$`)
	ofHash    = regexp.MustCompile(`^H(Get|MGet|Set|SetNX|Del|Exists|StrLen|IncrBy)$`)
)

func TestOnlyOnePackageSpellsAsynqsNames(t *testing.T) {
	t.Parallel()
	productFiles(t, "internal/asynqwire", func(path string, file *ast.File) {
		ast.Inspect(file, func(n ast.Node) bool {
			if s := text(n); asynqKey.MatchString(s) {
				t.Errorf("%s spells the key %q: package asynqwire names it", path, s)
			}
			switch n := n.(type) {
			case *ast.BinaryExpr:
				if s := text(n.Y); asynqKind.MatchString(s) && called(n.X) == "Prefix" {
					t.Errorf("%s spells the kind %q of a queue's keys: package asynqwire has a function for it", path, s)
				}
			case *ast.CallExpr:
				for _, arg := range n.Args {
					if s := text(arg); ofHash.MatchString(called(n)) && s != "" && !strings.HasPrefix(s, "railtoken:") {
						t.Errorf("%s spells the field %q of a task: package asynqwire has a constant for it", path, s)
					}
				}
			}
			return true
		})
	})
}

// errorClass matches what begins an error reply of Redis.
var errorClass = regexp.MustCompile(`^(ASK|BUSY|CLUSTERDOWN|CROSSSLOT|LOADING|MASTERDOWN|MISCONF|MOVED|NOAUTH|NOPERM|NOREPLICAS|NOSCRIPT|` +
	`OOM|READONLY|TRYAGAIN|WRONGPASS|WRONGTYPE)( |$)`)

func TestOnlyOnePackageTellsRedisErrorsApart(t *testing.T) {
	t.Parallel()
	productFiles(t, "internal/rediswire", func(path string, file *ast.File) {
		ast.Inspect(file, func(n ast.Node) bool {
			if s := text(n); errorClass.MatchString(s) {
				t.Errorf("%s spells the class of an error reply, %q: package rediswire names it", path, s)
			}
			if sel, ok := n.(*ast.SelectorExpr); ok && sel.Sel.Name == "HasErrorPrefix" {
				t.Errorf("%s calls HasErrorPrefix: rediswire.Says tells the classes apart", path)
			}
			return true
		})
	})
}

// A program that needs locks alone does not get asynq.
func TestLocksNeedNoAsynq(t *testing.T) {
	t.Parallel()
	const module = "github.com/railtoken/railtoken/"
	imports := map[string][]string{}
	productFiles(t, "-", func(path string, file *ast.File) {
		for _, each := range file.Imports {
			imports[module+filepath.ToSlash(filepath.Dir(path))] = append(imports[module+filepath.ToSlash(filepath.Dir(path))], text(each.Path))
		}
	})
	seen := map[string]bool{}
	var follow func(pkg string, way []string)
	follow = func(pkg string, way []string) {
		way = append(way, pkg)
		if strings.HasPrefix(pkg, "github.com/hibiken/asynq") {
			t.Errorf("locks need asynq: %s", strings.Join(way, " imports "))
		}
		if seen[pkg] {
			return
		}
		seen[pkg] = true
		for _, next := range imports[pkg] {
			follow(next, slices.Clone(way))
		}
	}
	for _, pkg := range []string{"locking", "fence", "pglock", "etcdlock"} {
		if len(imports[module+pkg]) == 0 {
			t.Errorf("there is no package %s", pkg)
		}
		follow(module+pkg, nil)
	}
}
