package main

import (
	"os"
	"strings"
	"testing"
)

// README first shows how to attach locks to a server, then this program.
func TestReadmeShowsTheAttachedAppThenThisProgram(t *testing.T) {
	t.Parallel()
	for i, name := range []string{"../attach/attached/main.go", "main.go"} {
		if !strings.Contains(read(t, name), shown(t)[i]) {
			t.Errorf("program %d of README is not in %s", i+1, name)
		}
	}
}

// All other programs of README are part of an example that runs, or of locksWithoutTasks.
func TestReadmeShowsWhatCompiles(t *testing.T) {
	t.Parallel()
	var sources []string
	for _, name := range []string{
		"main.go", "locks_test.go", "../../worker/example_order_test.go", "../../worker/example_inside_test.go", "../attach/attached/main.go", "../webshop/main.go",
		"../../attach/example_test.go", "../../attach/example_order_test.go", "../../attach/example_latest_test.go", "../../items/example_test.go",
	} {
		sources = append(sources, read(t, name))
	}
	all := strings.Join(sources, "\n")
	for _, program := range shown(t) {
		if !strings.Contains(all, program) {
			t.Errorf("README shows what is in no example:\n%s", program)
		}
	}
}

// shown returns the Go programs of README; there is at least one.
func shown(t *testing.T) (programs []string) {
	t.Helper()
	rest := read(t, "../../README.md")
	for {
		_, begun, ok := strings.Cut(rest, "```go\n")
		if !ok {
			break
		}
		program, after, closed := strings.Cut(begun, "```")
		if program = strings.TrimSpace(program); !closed || program == "" {
			t.Fatal("README has a Go program that is empty, or has no end")
		}
		programs, rest = append(programs, program), after
	}
	if len(programs) == 0 {
		t.Fatal("README has no Go program")
	}
	return programs
}

func read(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func Example() {
	main()
	// Output:
	// audit begins
	// audit ends
	// allocation runs, fenced: true
}
