package docker

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

func TestComposeFlagsAreThoseOfTheExample(t *testing.T) {
	t.Parallel()
	flags := exampleFlags(t, filepath.Join("..", "examples", "orders"))
	for name, s := range readCompose(t).Services {
		if s.Build == nil {
			continue
		}
		for i := 0; i < len(s.Command); i++ {
			flag, ok := strings.CutPrefix(s.Command[i], "-")
			takesValue, known := flags[flag]
			if !ok || !known {
				t.Errorf("%s: %q is no flag of the example", name, s.Command[i])
				continue
			}
			if !takesValue {
				continue
			}
			i++
			if i == len(s.Command) || strings.HasPrefix(s.Command[i], "-") {
				t.Errorf("%s: -%s has no value", name, flag)
			}
		}
	}
}

// exampleFlags returns the flags that a program defines by the flag package, and whether each takes a value.
func exampleFlags(t testing.TB, dir string) map[string]bool {
	t.Helper()
	if _, err := os.Stat(filepath.Join(dir, "main.go")); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	flags := map[string]bool{}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			method, ok := call.Fun.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			// Type(name, default, usage), TypeVar(&v, name, default, usage) and Var(&v, name, usage)
			kind, isVar := strings.CutSuffix(method.Sel.Name, "Var")
			at, args := 0, 3
			switch {
			case isVar && kind == "":
				at = 1
			case isVar:
				at, args = 1, 4
			}
			if len(call.Args) != args || !slices.Contains(flagKinds, kind) {
				return true
			}
			if literal, ok := call.Args[at].(*ast.BasicLit); ok && literal.Kind == token.STRING {
				if name, err := strconv.Unquote(literal.Value); err == nil {
					flags[name] = kind != "Bool"
				}
			}
			return true
		})
	}
	if len(flags) == 0 {
		t.Fatalf("no flags found in %s", path.Clean(dir))
	}
	return flags
}

var flagKinds = []string{"", "Bool", "Int", "Int64", "Uint", "Uint64", "Float64", "String", "Duration"}
