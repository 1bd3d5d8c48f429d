package main

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"html/template"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/text"
)

// repository is where files are shown that are no pages of the site.
const repository = "https://github.com/railtoken/railtoken"

//go:embed assets
var assets embed.FS

// found is a section that the search finds: its page and heading, its address and its words.
type found struct {
	Page    string `json:"p"`
	Heading string `json:"h"`
	Address string `json:"a"`
	Words   string `json:"w"`
}

// build writes the site and returns its pages.
func build(root, out string) ([]page, error) {
	pages, err := readPages(root)
	if err != nil {
		return nil, err
	}
	layout, err := template.ParseFS(assets, "assets/page.html")
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return nil, err
	}
	s := site{root: root, out: out, pages: pages}
	for _, p := range pages {
		if err := s.write(layout, p); err != nil {
			return nil, fmt.Errorf("%s: %w", p.source, err)
		}
	}
	index, err := json.Marshal(s.index)
	if err != nil {
		return nil, err
	}
	// A script, because pages that are opened from a folder may not fetch a file.
	files := map[string][]byte{"search-index.js": append(append([]byte("window.searchIndex = "), index...), ";\n"...)}
	for _, name := range []string{"style.css", "search.js"} {
		if files[name], err = assets.ReadFile("assets/" + name); err != nil {
			return nil, err
		}
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(out, name), content, 0o644); err != nil {
			return nil, err
		}
	}
	return pages, nil
}

// site is one that is being built.
type site struct {
	root, out string
	pages     []page
	index     []found
}

// write writes a page, copies its pictures and adds its sections to the index.
func (s *site) write(layout *template.Template, p page) error {
	markdown := goldmark.New(goldmark.WithExtensions(extension.GFM), goldmark.WithParserOptions(parser.WithAutoHeadingID()))
	doc := markdown.Parser().Parse(text.NewReader(p.text), parser.WithContext(parser.NewContext(parser.WithIDs(&anchors{}))))
	var pictures []string
	err := ast.Walk(doc, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		switch n := n.(type) {
		case *ast.Link:
			n.Destination = []byte(s.address(p, string(n.Destination)))
		case *ast.Image:
			picture := path.Join(path.Dir(p.source), string(n.Destination))
			pictures = append(pictures, picture)
			n.Destination = []byte(pictureName(picture))
		}
		return ast.WalkContinue, nil
	})
	if err != nil {
		return err
	}
	s.index = append(s.index, sections(doc, p)...)
	for _, picture := range pictures {
		content, err := os.ReadFile(filepath.Join(s.root, filepath.FromSlash(picture)))
		if err == nil {
			err = os.WriteFile(filepath.Join(s.out, pictureName(picture)), content, 0o644)
		}
		if err != nil {
			return err
		}
	}
	var body, whole bytes.Buffer
	if err := markdown.Renderer().Render(&body, p.text, doc); err != nil {
		return err
	}
	err = layout.Execute(&whole, map[string]any{
		"Title": p.title, "Name": p.name, "Navigation": navigation,
		"Body": template.HTML(body.String()), //nolint:gosec // made of the repository's own documents, without raw HTML
	})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(s.out, p.name), whole.Bytes(), 0o644)
}

// pictureName returns the name in the site of a picture of the repository.
func pictureName(source string) string {
	return strings.ReplaceAll(strings.TrimPrefix(source, "docs/"), "/", "-")
}

// address returns where a link of a page leads in the site: to another page, or to a file in the repository.
func (s *site) address(from page, link string) string {
	target, anchor, _ := strings.Cut(link, "#")
	if target == "" || strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
		return link
	}
	if anchor != "" {
		anchor = "#" + anchor
	}
	target = path.Join(path.Dir(from.source), target)
	if i := slices.IndexFunc(s.pages, func(p page) bool {
		return (p.source == target || path.Dir(p.source) == target && path.Base(p.source) == "main.go") && p.name != from.name
	}); i >= 0 {
		return s.pages[i].name + anchor
	}
	if target == "examples" {
		return "examples.html"
	}
	kind := "blob"
	info, err := os.Stat(filepath.Join(s.root, filepath.FromSlash(target)))
	if err != nil {
		return link // which check finds
	}
	if info.IsDir() {
		kind = "tree"
	}
	return repository + "/" + kind + "/main/" + target + anchor
}
