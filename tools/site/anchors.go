package main

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"

	"github.com/yuin/goldmark/ast"
)

// anchors gives headings the anchors that GitHub gives them, so that a link works in both places.
type anchors struct{ used map[string]int }

var dropped = regexp.MustCompile(`[^a-z0-9 -]`)

// Generate returns the anchor of a heading.
func (a *anchors) Generate(heading []byte, _ ast.NodeKind) []byte {
	id := dropped.ReplaceAllString(strings.ToLower(strings.TrimSpace(string(heading))), "")
	id = strings.ReplaceAll(id, " ", "-")
	if a.used == nil {
		a.used = map[string]int{}
	}
	n := a.used[id]
	a.used[id]++
	if n > 0 {
		id = fmt.Sprintf("%s-%d", id, n)
	}
	return []byte(id)
}

// Put takes an anchor that the document sets itself. No document does.
func (a *anchors) Put([]byte) {}

// sections returns what the search finds in a document: the text below each heading, up to the next one.
func sections(doc ast.Node, p page) (all []found) {
	at := found{Page: p.title, Heading: p.title, Address: p.name}
	var words bytes.Buffer
	end := func() {
		at.Words = strings.Join(strings.Fields(words.String()), " ")
		if at.Words != "" || len(all) == 0 {
			all = append(all, at)
		}
		words.Reset()
	}
	for n := doc.FirstChild(); n != nil; n = n.NextSibling() {
		if h, ok := n.(*ast.Heading); ok {
			if h.Level > 1 {
				end()
				id, _ := h.AttributeString("id")
				anchor, _ := id.([]byte)
				at = found{Page: p.title, Heading: strings.TrimSpace(plain(h, p.text)), Address: p.name + "#" + string(anchor)}
			}
			continue
		}
		words.WriteString(plain(n, p.text) + " ")
	}
	end()
	return all
}

// plain returns the text of a part of a document. Of code it takes the lines.
func plain(n ast.Node, source []byte) string {
	var b strings.Builder
	_ = ast.Walk(n, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			if n.Type() == ast.TypeBlock {
				b.WriteByte(' ')
			}
			return ast.WalkContinue, nil
		}
		switch n := n.(type) {
		case *ast.Text:
			b.Write(n.Segment.Value(source))
			if n.SoftLineBreak() || n.HardLineBreak() {
				b.WriteByte(' ')
			}
		case *ast.FencedCodeBlock:
			b.Write(n.Lines().Value(source))
		}
		return ast.WalkContinue, nil
	})
	return b.String()
}
