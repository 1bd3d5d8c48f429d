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

func TestComposeFlagsAreThoseOfThePrograms(t *testing.T) {
	t.Parallel()
	for name, s := range readCompose(t).Services {
		if s.Build == nil {
			continue
		}
		p := programs[s.Build.Target]
		flags, first := programFlags(t, filepath.Join(root, p.module, p.pkg)), 0
		if s.Build.Target == "railtoken" {
			first = 1 // after the name of the command
		}
		for i := first; i < len(s.Command); i++ {
			flag := strings.TrimLeft(s.Command[i], "-")
			ok := flag != s.Command[i]
			takesValue, known := flags[flag]
			if !ok || !known {
				t.Errorf("%s: %q is no flag of the program", name, s.Command[i])
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

// programFlags returns the flags that a program defines by the flag package or by pflag, and whether each takes a value.
func programFlags(t testing.TB, dir string) map[string]bool {
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

var flagKinds = []string{"", "Bool", "Int", "Int64", "Uint", "Uint64", "Float64", "String", "StringSlice", "Duration"}
