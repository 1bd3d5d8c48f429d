package railtoken_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/railtoken/railtoken/worker"
)

// packages are those that the documents may name.
var packages = []string{"attach", "worker", "worker/embeddedredis", "middleware", "delayqueue", "items", "inspect", "inspect/admin", "inspect/explain", "fence", "locking", "locking/backend", "locking/lockingtest", "pglock"}

// documents returns the texts of README and docs by their names.
func documents(t *testing.T) map[string]string {
	t.Helper()
	names, err := filepath.Glob("docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	texts := map[string]string{}
	for _, name := range append(names, "README.md", "CONTRIBUTING.md", "SECURITY.md", "docker/README.md", "model/README.md") {
		if name != "docs/benchmarks.md" { // it tells of the tree that was measured
			texts[name] = read(t, name)
		}
	}
	return texts
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// files parses the Go files below a folder, without tests.
func files(t *testing.T, folder string, deep bool) (parsed []*ast.File) {
	t.Helper()
	err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != folder && !deep:
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		parsed = append(parsed, file)
		return err
	})
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return parsed
}

// exported returns the exported names of the packages: package.Name and package.Type.Member.
func exported(t *testing.T) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	for _, folder := range packages {
		for _, file := range files(t, folder, false) {
			pkg := file.Name.Name + "."
			for _, decl := range file.Decls {
				switch d := decl.(type) {
				case *ast.FuncDecl:
					if d.Recv == nil {
						names[pkg+d.Name.Name] = true
					} else {
						names[pkg+receiver(d.Recv.List[0].Type)+"."+d.Name.Name] = true
					}
				case *ast.GenDecl:
					for _, spec := range d.Specs {
						declare(names, pkg, spec)
					}
				}
			}
		}
	}
	return names
}

func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}

func declare(names map[string]bool, pkg string, spec ast.Spec) {
	switch s := spec.(type) {
	case *ast.ValueSpec:
		for _, n := range s.Names {
			names[pkg+n.Name] = true
		}
	case *ast.TypeSpec:
		names[pkg+s.Name.Name] = true
		var members *ast.FieldList
		switch typ := s.Type.(type) {
		case *ast.StructType:
			members = typ.Fields
		case *ast.InterfaceType:
			members = typ.Methods
		default:
			return
		}
		for _, field := range members.List {
			for _, n := range field.Names {
				names[pkg+s.Name.Name+"."+n.Name] = true
			}
		}
	}
}

var (
	code      = regexp.MustCompile("(?s)```.*?```|`[^`]+`")
	qualified = regexp.MustCompile(`\b(attach|worker|embeddedredis|middleware|delayqueue|inspect|admin|explain|fence|locking|backend|lockingtest)\.([A-Z]\w*(?:\.[A-Z]\w*)?)`)
	plain     = regexp.MustCompile("^`([A-Z]\\w*[a-z]\\w*(?:\\.[A-Z]\\w*)?)[`({]")
	variable  = regexp.MustCompile(`RAILTOKEN_[A-Z_]+[A-Z]`)
	redisKey  = regexp.MustCompile(`(railtoken:[a-z]+)(?::?\{\w+\}(:[a-z]+)?)?`)
	link      = regexp.MustCompile(`\]\(([^)]+)\)`)
	citation  = regexp.MustCompile(`docs/design\.md, (?:sections? )?((?:\d+(?:\.\d+)?(?:, | and | to )?)+)`)
	section   = regexp.MustCompile(`\d+(?:\.\d+)?`)
)

func TestDocumentsNameOnlyWhatExists(t *testing.T) {
	t.Parallel()
	names := exported(t)
	for doc, text := range documents(t) {
		for _, snippet := range code.FindAllString(text, -1) {
			for _, m := range qualified.FindAllStringSubmatch(snippet, -1) {
				if name := m[1] + "." + m[2]; !names[name] {
					t.Errorf("%s names %s, which does not exist", doc, name)
				}
			}
			if m := plain.FindStringSubmatch(snippet); len(m) > 0 && !isKnown(names, m[1]) {
				t.Errorf("%s names %s, which no package has", doc, m[1])
			}
		}
		for _, name := range variable.FindAllString(text, -1) {
			if !slices.Contains(worker.EnvNames(), name) {
				t.Errorf("%s names the variable %s, which a worker does not read", doc, name)
			}
		}
	}
}

// isKnown reports whether a package has a name, as Name or Type.Member, or asynq or go-redis has it.
func isKnown(names map[string]bool, name string) bool {
	return slices.Contains(foreign, name) ||
		slices.ContainsFunc(packages, func(folder string) bool { return names[filepath.Base(folder)+"."+name] }) ||
		slices.ContainsFunc(slices.Collect(maps.Keys(names)), func(known string) bool { return strings.HasSuffix(known, "."+name) })
}

// foreign are names of others that the documents use without their package.
var foreign = []string{
	"Unique", "TaskID", "Scheduler", "PeriodicTaskManager", "MaxRetry", "IsFailure", "RetryDelayFunc", "LastErr", "RunAllRetryTasks", "Shutdown",
	"PoolSize", "PoolStats", "ContextTimeoutEnabled", "ReadTimeout", "MaxRetries",
	"WithExpiry", "Extend",
}

func TestDocumentsNameTheRedisKeysOfTheCode(t *testing.T) {
	t.Parallel()
	var sources strings.Builder
	for _, folder := range []string{"locking", "fence", "delayqueue", "middleware", "attach", "inspect", "internal"} {
		err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
			if ext := filepath.Ext(path); err == nil && !d.IsDir() && (ext == ".go" || ext == ".lua") && !strings.HasSuffix(path, "_test.go") {
				sources.WriteString(read(t, path))
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for doc, text := range documents(t) {
		for _, snippet := range code.FindAllString(text, -1) {
			for _, m := range redisKey.FindAllStringSubmatch(snippet, -1) {
				for _, name := range m[1:] {
					if !strings.Contains(sources.String(), `"`+name) {
						t.Errorf("%s names the Redis key %s, and no source has %q", doc, m[0], name)
					}
				}
			}
		}
	}
}

func TestDocumentsLinkToWhatExists(t *testing.T) {
	t.Parallel()
	for doc, text := range documents(t) {
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			target, anchor, _ := strings.Cut(m[1], "#")
			if strings.Contains(target, "://") {
				continue
			}
			path := doc
			if target != "" {
				path = filepath.Join(filepath.Dir(doc), target)
			}
			if _, err := os.Stat(path); err != nil {
				t.Errorf("%s links to %s: %v", doc, m[1], err)
			} else if anchor != "" && !slices.Contains(anchors(read(t, path)), anchor) {
				t.Errorf("%s links to %s, which has no such heading", doc, m[1])
			}
		}
	}
}

// anchors returns the anchors of the headings of a document, as GitHub makes them.
func anchors(text string) (all []string) {
	for line := range strings.Lines(text) {
		if heading, ok := strings.CutPrefix(strings.TrimLeft(line, "#"), " "); ok && strings.HasPrefix(line, "#") {
			all = append(all, regexp.MustCompile(`[^a-z0-9 -]`).ReplaceAllString(strings.ToLower(strings.TrimSpace(heading)), ""))
			all[len(all)-1] = strings.ReplaceAll(all[len(all)-1], " ", "-")
		}
	}
	return all
}

// When this fails after a benchmark, copy the rows from docs/benchmarks.md.
func TestReadmeHasTheFiguresOfTheBenchmark(t *testing.T) {
	t.Parallel()
	_, figures, found := strings.Cut(read(t, "README.md"), "\n## How fast?\n")
	if !found {
		t.Fatal("README has no figures")
	}
	benchmarks := strings.Split(read(t, "docs/benchmarks.md"), "\n")
	for line := range strings.Lines(figures) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "|") && !slices.Contains(benchmarks, line) {
			t.Errorf("docs/benchmarks.md has no such row:\n%s", line)
		}
	}
}

func TestDesignHasTheSectionsThatCodeCites(t *testing.T) {
	t.Parallel()
	design, cited := read(t, "docs/design.md"), 0
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() && strings.HasPrefix(d.Name(), ".") && path != "." {
			return errorOr(err, fs.SkipDir)
		}
		if d.IsDir() || !slices.Contains([]string{".go", ".lua", ".pml", ".sh", ".md"}, filepath.Ext(path)) || path == "docs_test.go" {
			return nil
		}
		for _, m := range citation.FindAllStringSubmatch(read(t, path), -1) {
			for _, number := range section.FindAllString(m[1], -1) {
				cited++
				if !regexp.MustCompile(`(?m)^#+ ` + regexp.QuoteMeta(number) + `[. ]`).MatchString(design) {
					t.Errorf("%s cites section %s of the design, which does not exist", path, number)
				}
			}
		}
		return nil
	})
	if err != nil || cited == 0 {
		t.Errorf("%d citations found, %v", cited, err)
	}
}

func errorOr(err, other error) error {
	if err != nil {
		return err
	}
	return other
}

func TestOperationsListEachLogMessage(t *testing.T) {
	t.Parallel()
	_, text, _ := strings.Cut(read(t, "docs/operations.md"), "\n## Log messages\n")
	text, _, _ = strings.Cut(text, "\n## ")
	var listed []string
	for line := range strings.Lines(text) {
		if cells := strings.Split(line, " | "); strings.HasPrefix(line, "| ") && len(cells) == 2 {
			listed = append(listed, strings.Split(strings.TrimPrefix(cells[0], "| "), ", ")...)
		}
	}
	listed = slices.DeleteFunc(listed, func(s string) bool { return s == "Message" || s == "---" || s == "asynq" })
	logged := messages(t)
	covers := func(l, message string) bool { return strings.HasPrefix(message, l) }
	for _, message := range logged {
		if !slices.ContainsFunc(listed, func(l string) bool { return covers(l, message) }) {
			t.Errorf("docs/operations.md does not list the message %q", message)
		}
	}
	for _, l := range listed {
		if !slices.ContainsFunc(logged, func(message string) bool { return covers(l, message) }) {
			t.Errorf("docs/operations.md lists %q, which nothing logs", l)
		}
	}
}

// messages returns the messages that the packages log, each up to its first variable part.
func messages(t *testing.T) (all []string) {
	t.Helper()
	for _, folder := range []string{"attach", "worker", "items", "middleware", "delayqueue", "locking", "internal/line", "internal/broker", "internal/ends", "internal/preflight", "internal/restartguard", "internal/taskrun"} {
		for _, file := range files(t, folder, true) {
			ast.Inspect(file, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok {
					return true
				}
				if i := messageOf(call); i >= 0 && i < len(call.Args) {
					if text, ok := literal(call.Args[i]); ok {
						all = append(all, text)
					}
				}
				return true
			})
		}
	}
	if len(all) < 20 {
		t.Errorf("only %d messages found", len(all))
	}
	return all
}

// messageOf returns which argument of a call is the message of a log, or -1.
func messageOf(call *ast.CallExpr) int {
	method, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return -1
	}
	var logger string
	switch x := method.X.(type) {
	case *ast.Ident:
		logger = x.Name
	case *ast.SelectorExpr:
		logger = x.Sel.Name
	}
	switch {
	case !slices.Contains([]string{"log", "logger", "Logger"}, logger):
		return -1
	case slices.Contains([]string{"Info", "Warn", "Error"}, method.Sel.Name):
		return 0
	case slices.Contains([]string{"InfoContext", "WarnContext", "ErrorContext"}, method.Sel.Name):
		return 1
	}
	return -1
}

// literal returns the text of a string, or the first part of a concatenation.
func literal(e ast.Expr) (string, bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(e.Value)
		return text, err == nil && e.Kind == token.STRING
	case *ast.BinaryExpr:
		return literal(e.X)
	}
	return "", false
}
