package main

import (
	"os"
	"strings"
	"testing"
)

// What README shows is this very program, from the line of its first handler to the end of main.
func TestReadmeShowsThisProgram(t *testing.T) {
	t.Parallel()
	program, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(readme), "```go\n")
	shown, _, closed := strings.Cut(rest, "```")
	if !ok || !closed || strings.TrimSpace(shown) == "" {
		t.Fatal("README has no Go program")
	}
	if !strings.Contains(string(program), strings.TrimSpace(shown)) {
		t.Error("README shows something else than examples/quickstart/main.go")
	}
}

func Example() {
	main()
	// Output:
	// audit begins
	// audit ends
	// allocation runs, fenced: true
}
