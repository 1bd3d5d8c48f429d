package broker

import (
	"crypto/sha1" //nolint:gosec // it is how Redis names scripts
	"encoding/hex"
	"go/ast"
	"go/parser"
	"go/token"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// asynqVersion is the version of asynq whose scripts are pinned.
const asynqVersion = "v0.26.0"

// An upgrade of asynq fails here first. Read what has changed in each script that differs before its sum is pinned
// anew.
func TestScriptsAreThoseOfTheAsynqInUse(t *testing.T) {
	t.Parallel()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Version}} {{.Dir}}",
		"github.com/hibiken/asynq").Output()
	if err != nil {
		t.Fatal(err)
	}
	version, dir, _ := strings.Cut(strings.TrimSpace(string(out)), " ")
	if version != asynqVersion {
		t.Errorf("asynq is %s; the pinned scripts are those of %s", version, asynqVersion)
	}
	found := map[string]string{}
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(dir, "internal", "rdb", "rdb.go"), nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		if name, text, ok := scriptIn(n); ok {
			sum := sha1.Sum([]byte(text)) //nolint:gosec // see above
			found[hex.EncodeToString(sum[:])] = strings.TrimSuffix(name, "Cmd")
		}
		return true
	})
	for sum, name := range found {
		if scripts[sum] != name {
			t.Errorf("%s is %q here, and asynq's %s", sum, scripts[sum], name)
		}
	}
	for sum, name := range scripts {
		if _, ok := found[sum]; !ok {
			t.Errorf("asynq has no script %s with the sum %s", name, sum)
		}
	}
}

// scriptIn returns the name and the text of a script that a node of asynq's source declares.
func scriptIn(n ast.Node) (name, text string, ok bool) {
	spec, isSpec := n.(*ast.ValueSpec)
	if !isSpec || len(spec.Values) != 1 {
		return "", "", false
	}
	call, isCall := spec.Values[0].(*ast.CallExpr)
	if !isCall || len(call.Args) != 1 {
		return "", "", false
	}
	fun, isSelector := call.Fun.(*ast.SelectorExpr)
	literal, isLiteral := call.Args[0].(*ast.BasicLit)
	if !isSelector || !isLiteral || fun.Sel.Name != "NewScript" {
		return "", "", false
	}
	text, err := strconv.Unquote(literal.Value)
	return spec.Names[0].Name, text, err == nil
}

// An Inspector that deletes a queue names the active tasks and the leases too.
func TestAScriptOverAWholeQueueEndsNoRun(t *testing.T) {
	t.Parallel()
	keys := []string{"asynq:{q}:pending", "asynq:{q}:active", "asynq:{q}:lease"}
	if kind, _ := KindOf("unknown", keys); kind != Other {
		t.Errorf("it is of kind %d", kind)
	}
	if kind, _ := KindOf("unknown", append(keys, "asynq:{q}:t:a")); kind != Ack {
		t.Errorf("one about a task is of kind %d", kind)
	}
}
