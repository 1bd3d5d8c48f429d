package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// page is one of the site. Its source is Markdown.
type page struct {
	source string // path in the repository
	name   string // of the file in the site
	title  string
	text   []byte
}

// entry is a link of the navigation; one without a target is a heading.
type entry struct{ Title, Target string }

// navigation begins with what newcomers ask. Documents that are not named here follow at the end.
var navigation = []entry{
	{"Start", ""},
	{"What is railtoken?", "index.html"},
	{"How do I attach it?", "index.html#add-it"},
	{"What happens on a conflict?", "index.html#what-happens-on-a-conflict"},
	{"What if a worker dies?", "failure-modes.html#workers"},
	{"Which server?", "compatibility.html#what-it-works-with"},
	{"Examples", "examples.html"},
	{"Choose", ""},
	{"Comparison", "comparison.html"},
	{"Migration", "migration.html"},
	{"Compatibility", "compatibility.html"},
	{"Which lock?", "which-lock.html"},
	{"Benchmarks", "benchmarks.html"},
	{"Under load", "benchmarks-load.html"},
	{"Run", ""},
	{"Operations", "operations.html"},
	{"Failure modes", "failure-modes.html"},
	{"Reliability", "reliability.html"},
	{"Mutation", "mutation.html"},
	{"Understand", ""},
	{"Design", "design.html"},
	{"Glossary", "glossary.html"},
	{"Take part", ""},
	{"Contributing", "contributing.html"},
	{"Security", "security.html"},
	{"Releasing", "releasing.html"},
	{"Change log", "changelog.html"},
}

// readPages reads the documents and makes a page of each example.
func readPages(root string) ([]page, error) {
	names, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil {
		return nil, err
	}
	sources := []string{"README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"}
	for _, name := range names {
		sources = append(sources, path.Join("docs", filepath.Base(name)))
	}
	var pages []page
	for _, source := range sources {
		text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(source)))
		if err != nil {
			return nil, err
		}
		name := strings.ToLower(strings.TrimSuffix(path.Base(source), ".md")) + ".html"
		if source == "README.md" {
			name = "index.html"
		}
		pages = append(pages, page{source: source, name: name, title: titleOf(text), text: text})
	}
	examples, err := examplePages(root)
	return append(pages, examples...), err
}

// titleOf returns the first heading of a document.
func titleOf(text []byte) string {
	for line := range strings.Lines(string(text)) {
		if heading, ok := strings.CutPrefix(line, "# "); ok {
			return strings.TrimSpace(heading)
		}
	}
	return ""
}

// examplePages makes a page of each program below examples, and one that lists them.
func examplePages(root string) ([]page, error) {
	programs, err := filepath.Glob(filepath.Join(root, "examples", "*", "main.go"))
	if err != nil {
		return nil, err
	}
	nested, err := filepath.Glob(filepath.Join(root, "examples", "*", "*", "main.go"))
	if err != nil {
		return nil, err
	}
	programs = append(programs, nested...)
	slices.Sort(programs)
	var list strings.Builder
	list.WriteString("# Examples\n\nEach is a whole program of the repository, which is compiled and tested with it.\n")
	var pages []page
	for _, program := range programs {
		code, err := os.ReadFile(program)
		if err != nil {
			return nil, err
		}
		source, err := filepath.Rel(root, program)
		if err != nil {
			return nil, err
		}
		source = filepath.ToSlash(source)
		comment, err := packageComment(code)
		if err != nil {
			return nil, err
		}
		folder := path.Dir(source)
		name := strings.ReplaceAll(folder, "/", "-") + ".html"
		short := strings.TrimPrefix(folder, "examples/")
		pages = append(pages, page{
			source: source, name: name, title: short,
			text: []byte("# " + short + "\n\n" + comment + "\n\n[" + source + "](main.go)\n\n```go\n" + string(code) + "```\n"),
		})
		list.WriteString("\n## " + short + "\n\n" + comment + " [The program](" + strings.TrimPrefix(source, "examples/") + ")\n")
	}
	return append(pages, page{source: "examples/index", name: "examples.html", title: "Examples", text: []byte(list.String())}), nil
}

// packageComment returns the comment that explains a program, as one paragraph.
func packageComment(code []byte) (string, error) {
	file, err := parser.ParseFile(token.NewFileSet(), "main.go", code, parser.ParseComments|parser.PackageClauseOnly)
	if err != nil {
		return "", err
	}
	if file.Doc == nil {
		file.Doc = &ast.CommentGroup{}
	}
	return strings.Join(strings.Fields(file.Doc.Text()), " "), nil
}
