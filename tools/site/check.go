package main

import (
	"fmt"
	"go/parser"
	"go/token"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

var (
	ids       = regexp.MustCompile(` id="([^"]+)"`)
	addresses = regexp.MustCompile(` (href|src)="([^"]*)"`)
	blocks    = regexp.MustCompile("(?ms)^ *```([a-z]*)\n(.*?)\n *```$")
)

// check returns what is wrong with a site: links that lead nowhere, files of others, and Go code that is none.
func check(out string, pages []page) (faults []error) {
	texts, known := map[string]string{}, map[string]bool{}
	for _, p := range pages {
		text, err := os.ReadFile(filepath.Join(out, p.name))
		if err != nil {
			faults = append(faults, err)
			continue
		}
		texts[p.name] = string(text)
		for _, m := range ids.FindAllStringSubmatch(string(text), -1) {
			known[p.name+"#"+m[1]] = true
		}
	}
	for name, text := range texts {
		for _, m := range addresses.FindAllStringSubmatch(text, -1) {
			if err := reachable(out, name, m[1], m[2], known); err != nil {
				faults = append(faults, fmt.Errorf("%s: %w", name, err))
			}
		}
	}
	for _, p := range pages {
		for _, m := range blocks.FindAllStringSubmatch(string(p.text), -1) {
			if m[1] == "go" && !isGo(m[2]) {
				faults = append(faults, fmt.Errorf("%s shows Go code that does not parse:\n%s", p.source, m[2]))
			}
		}
	}
	return faults
}

// reachable returns why a link of a page leads nowhere, or why a page loads something from elsewhere.
func reachable(out, page, kind, address string, known map[string]bool) error {
	link, err := url.Parse(strings.ReplaceAll(address, "&amp;", "&"))
	switch {
	case err != nil:
		return err
	case link.Scheme != "" && link.Scheme != "data" && kind == "src":
		return fmt.Errorf("it loads %s from elsewhere", address)
	case link.Scheme != "":
		return nil
	}
	target := page
	if link.Path != "" {
		target = link.Path
	}
	if _, err := os.Stat(filepath.Join(out, filepath.FromSlash(target))); err != nil {
		return fmt.Errorf("a link to %s, which does not exist", address)
	}
	if link.Fragment != "" && !known[target+"#"+link.Fragment] {
		return fmt.Errorf("a link to %s, which has no such heading", address)
	}
	return nil
}

// isGo reports whether a text is a file, declarations or statements of Go.
func isGo(code string) bool {
	for _, around := range [][2]string{{"", ""}, {"package p\n", ""}, {"package p\nfunc f() {\n", "\n}"}} {
		if _, err := parser.ParseFile(token.NewFileSet(), "code.go", around[0]+code+around[1], parser.SkipObjectResolution); err == nil {
			return true
		}
	}
	return false
}
