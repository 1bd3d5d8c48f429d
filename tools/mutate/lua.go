package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// luaHelper is compiled into a package that embeds Lua. It replaces the text of the file that MUTANT_LUA names by that of the file
// MUTANT_TEXT, and adds the names of the files that it is asked for to the file MUTANT_LINKED.
const luaHelper = `

import "os"

func mutationText(file, text string) string {
	if path := os.Getenv("MUTANT_LINKED"); path != "" {
		linked, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			panic(err)
		}
		defer linked.Close()
		if _, err := linked.WriteString(file + "\n"); err != nil {
			panic(err)
		}
	}
	if os.Getenv("MUTANT_LUA") != file {
		return text
	}
	changed, err := os.ReadFile(os.Getenv("MUTANT_TEXT"))
	if err != nil {
		panic(err)
	}
	return string(changed)
}
`

// embedded finds the variable of an embedded Lua file.
var embedded = regexp.MustCompile(`(?m)^(\t?)//go:embed (lua/[a-z_]+\.lua)\n\t?(var )?(\w+) string$`)

// prepareLua makes the mutants of all Lua files of the target's folders, and the overlay that lets each take the place of its file.
func (t *trial) prepareLua() error {
	t.overlay = map[string]string{}
	changed := map[*mutant]string{}
	for _, folder := range t.target.folders {
		paths, err := filepath.Glob(filepath.Join(t.root, folder, "*.lua"))
		if err != nil {
			return err
		}
		slices.Sort(paths)
		for _, path := range paths {
			source, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			file := filepath.ToSlash(filepath.Join(folder, filepath.Base(path)))
			mutants, err := mutateLua(file, string(source))
			if err != nil {
				return err
			}
			for _, m := range mutants {
				m.ID = len(t.all) + 1
				t.all = append(t.all, &m.mutant)
				changed[&m.mutant] = (&edits{m.edit}).apply(string(source))
			}
			if err := t.hook(filepath.Dir(filepath.Dir(path)), file); err != nil {
				return err
			}
		}
	}
	if len(t.all) == 0 {
		return fmt.Errorf("%s has no mutants", t.target.name)
	}
	t.env = func(m *mutant) ([]string, error) {
		path := filepath.Join(t.scratch, "mutant.lua")
		return []string{"MUTANT_LUA=" + m.File, "MUTANT_TEXT=" + path}, os.WriteFile(path, []byte(changed[m]), 0o600)
	}
	return nil
}

// hook has the package in a folder ask for the text of an embedded file.
func (t *trial) hook(dir, file string) error {
	paths, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return err
	}
	for _, path := range paths {
		text, ok := t.overlay[path]
		if !ok {
			read, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			text = string(read)
		}
		for _, found := range embedded.FindAllStringSubmatch(text, -1) {
			if !strings.HasSuffix(file, found[2]) {
				continue
			}
			indent, keyword, name := found[1], found[3], found[4]
			t.overlay[path] = strings.Replace(text, found[0], fmt.Sprintf("%s//go:embed %s\n%s%s%sEmbedded string\n%s%s%s = mutationText(%q, %sEmbedded)",
				indent, found[2], indent, keyword, name, indent, keyword, name, file, name), 1)
			clause, _, _ := strings.Cut(text[strings.Index(text, "\npackage ")+1:], "\n")
			if strings.HasPrefix(text, "package ") {
				clause, _, _ = strings.Cut(text, "\n")
			}
			t.overlay[filepath.Join(dir, "mutation_helper.go")] = clause + luaHelper
			return nil
		}
	}
	return fmt.Errorf("no Go file of %s embeds %s", dir, file)
}
