package testserver_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/railtoken/railtoken/internal/testing/testserver"
)

var redis = testserver.Server{
	Name: "redis-server", Import: "github.com/railtoken/railtoken/internal/testing/redistest",
	Starters: []string{"Start", "StartCluster", "StartSentinel"},
}

func TestLeftOutFindsDirectAndIndirectCalls(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	write(t, root, "a/direct_test.go", `package a_test
		import ("testing"; "github.com/railtoken/railtoken/internal/testing/redistest")
		func TestDirect(t *testing.T) { redistest.Start(t) }
		func BenchmarkCluster(b *testing.B) { redistest.StartCluster(b, 3) }
		func BenchmarkSentinel(b *testing.B) { redistest.StartSentinel(b) }
		func FuzzInside(f *testing.F) { f.Fuzz(func(t *testing.T, _ string) { redistest.Start(t) }) }
		func TestVirtualOnly(t *testing.T) { redistest.Virtual(t) }
		func TestMain(m *testing.M) { open(nil); m.Run() }
		func Testify(t *testing.T) { redistest.Start(t) }
		func open(t *testing.T) string { return redistest.Start(t).Addr() }`)
	write(t, root, "a/indirect_test.go", `package a_test
		import "testing"
		var backends = map[string]func(*testing.T) string{"redis": open}
		type suite struct{}
		func (suite) up(t *testing.T) { open(t) }
		func TestByHelper(t *testing.T) { _ = open(t) }
		func TestByTable(t *testing.T) { for _, b := range backends { b(t) } }
		func TestByMethod(t *testing.T) { suite{}.up(t) }
		func TestUnrelated(t *testing.T) { s := server{}; s.Start(t) }`)
	write(t, root, "nested/go.mod", "module example.com/nested")
	write(t, root, "nested/b_test.go", `package b
		import ("testing"; rt "github.com/railtoken/railtoken/internal/testing/redistest")
		func TestRenamedImport(t *testing.T) { rt.Start(t) }`)
	write(t, root, "other/c_test.go", `package c
		import ("testing"; "example.com/redistest")
		func TestOtherPackage(t *testing.T) { redistest.Start(t) }`)
	write(t, root, "testdata/d_test.go", `package d
		import ("testing"; "github.com/railtoken/railtoken/internal/testing/redistest")
		func TestInTestdata(t *testing.T) { redistest.Start(t) }`)

	got, err := redis.Find(root)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"./a: BenchmarkCluster",
		"./a: BenchmarkSentinel",
		"./a: FuzzInside",
		"./a: TestByHelper",
		"./a: TestByMethod",
		"./a: TestByTable",
		"./a: TestDirect",
		"./nested: TestRenamedImport",
	}
	if !slices.Equal(got, want) {
		t.Errorf("left out:\n%q\nwant:\n%q", got, want)
	}
}

func TestLeftOutReportsAFileThatDoesNotParse(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	write(t, root, "a_test.go", "package")
	if _, err := redis.Find(root); err == nil {
		t.Error("no error")
	}
}

func write(t *testing.T, root, name, text string) {
	t.Helper()
	name = filepath.Join(root, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
