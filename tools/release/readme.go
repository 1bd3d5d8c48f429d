package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// shown are the documents whose programs users copy.
var shown = []string{"README.md", "docs/migration.md"}

// readme compiles the files that the programs of the documents are part of, each as a program of a user: in a folder of its own, in the
// module that has got the root.
func (u *user) readme(root, folder string) error {
	names, err := list(u.ctx, root, ".")
	if err != nil {
		return err
	}
	var sources []string
	for _, document := range shown {
		text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(document)))
		if err != nil {
			return err
		}
		files, err := shownSources(root, string(text), names)
		if err != nil {
			return fmt.Errorf("%s %w", document, err)
		}
		for _, name := range files {
			if !slices.Contains(sources, name) {
				sources = append(sources, name)
			}
		}
	}
	for i, name := range sources {
		code, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			return err
		}
		dir := filepath.Join(folder, fmt.Sprintf("program%d", i))
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(name)), code, 0o644); err != nil {
			return err
		}
	}
	// With -test, because an Example is one; go vet would also examine all that the programs import.
	if err := u.run(folder, "list", "-export", "-test", "./..."); err != nil {
		return fmt.Errorf("programs of the documents (%s): %w", strings.Join(sources, ", "), err)
	}
	return nil
}

// shownSources returns the names of the files that have the Go programs of a document. Each program must be in one.
func shownSources(root, text string, names []string) (sources []string, err error) {
	programs, err := goPrograms(text)
	if err != nil {
		return nil, err
	}
	code := map[string]string{}
	for _, name := range names {
		if !strings.HasSuffix(name, ".go") {
			continue
		}
		b, err := os.ReadFile(filepath.Join(root, name))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		code[name] = string(b)
	}
	for _, program := range programs {
		i := slices.IndexFunc(names, func(name string) bool { return strings.Contains(code[name], program) })
		if i < 0 {
			return nil, fmt.Errorf("shows what is in no Go file:\n%s", program)
		}
		if !slices.Contains(sources, names[i]) {
			sources = append(sources, names[i])
		}
	}
	return sources, nil
}

// goPrograms returns the blocks of Go code of a document; there is at least one.
func goPrograms(text string) (programs []string, err error) {
	for {
		_, begun, ok := strings.Cut(text, "```go\n")
		if !ok {
			break
		}
		program, after, closed := strings.Cut(begun, "```")
		if program = strings.TrimSpace(program); !closed || program == "" {
			return nil, errors.New("has a Go program that is empty, or has no end")
		}
		programs, text = append(programs, program), after
	}
	if len(programs) == 0 {
		return nil, errors.New("has no Go program")
	}
	return programs, nil
}
