package main

import (
	"fmt"
	"go/ast"
	"go/token"
	"path/filepath"
	"strings"
)

// goMutants is a package with all its mutants compiled in.
type goMutants struct {
	mutants []*mutant
	overlay map[string]string // the text of each changed or added file, by its path
}

// mutateGo makes the mutants of those files of a package that use chooses, except those of dropped lines, "path:line".
func mutateGo(p *goPackage, root string, use func(name string) bool, dropped map[string]bool) (*goMutants, error) {
	all := &goMutants{overlay: map[string]string{}}
	for i, file := range p.files {
		if !use(filepath.Base(p.paths[i])) {
			continue
		}
		relative, err := filepath.Rel(root, p.paths[i])
		if err != nil {
			return nil, err
		}
		w := &goWalker{p: p, file: relative, text: p.texts[i], dropped: dropped, first: len(all.mutants) + 1}
		w.walk(file)
		all.mutants = append(all.mutants, w.mutants...)
		all.overlay[p.paths[i]] = w.edits.apply(w.text)
	}
	if len(all.mutants) == 0 {
		return nil, fmt.Errorf("%s has no mutants", p.dir)
	}
	all.overlay[filepath.Join(p.dir, "mutation_helper.go")] = "package " + p.name + helper
	return all, nil
}

// goWalker walks through one file and notes its mutants.
type goWalker struct {
	p       *goPackage
	file    string
	text    string
	dropped map[string]bool
	first   int // the number of the first mutant

	stack   []ast.Node // the node under way is the last
	mutants []*mutant
	edits   edits
}

func (w *goWalker) walk(file *ast.File) {
	ast.Inspect(file, func(n ast.Node) bool {
		if n == nil {
			w.stack = w.stack[:len(w.stack)-1]
			return true
		}
		w.stack = append(w.stack, n)
		if !w.visit(n) {
			w.stack = w.stack[:len(w.stack)-1]
			return false
		}
		return true
	})
}

// visit notes the mutants of a node, and reports whether those inside of it come next.
func (w *goWalker) visit(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.ImportSpec, *ast.ArrayType, *ast.StructType, *ast.InterfaceType, *ast.FuncType, *ast.MapType:
		return false
	case *ast.GenDecl:
		return n.Tok == token.VAR
	case ast.Expr:
		return w.expression(n)
	case ast.Stmt:
		w.statement(n)
	}
	return true
}

// parent returns the node that the current one is in, above nodes in parentheses.
func (w *goWalker) parent() ast.Node {
	for i := len(w.stack) - 2; i >= 0; i-- {
		if _, ok := w.stack[i].(*ast.ParenExpr); !ok {
			return w.stack[i]
		}
	}
	return nil
}

// at returns the place of a node in the source.
func (w *goWalker) at(n ast.Node) (start, end int) {
	return w.p.fset.Position(n.Pos()).Offset, w.p.fset.Position(n.End()).Offset
}

// source returns the text of a node.
func (w *goWalker) source(n ast.Node) string {
	start, end := w.at(n)
	return w.text[start:end]
}

// add notes a mutant at a node and returns its number, or 0 if the node's line is dropped.
func (w *goWalker) add(n ast.Node, operator, after string) int {
	position := w.p.fset.Position(n.Pos())
	if w.dropped[fmt.Sprintf("%s:%d", position.Filename, position.Line)] {
		return 0
	}
	start := position.Offset - position.Column + 1
	line, _, _ := strings.Cut(w.text[start:], "\n")
	m := &mutant{
		ID: w.first + len(w.mutants), File: w.file, Line: position.Line, Func: w.function(), Operator: operator,
		Before: short(w.source(n)), After: short(after), Text: strings.TrimSpace(line),
	}
	w.mutants = append(w.mutants, m)
	return m.ID
}

// wrap notes a mutant at a node, and puts text around the node; %d stands for the number of the mutant.
func (w *goWalker) wrap(n ast.Node, operator, after, before, behind string) {
	id := w.add(n, operator, after)
	if id == 0 {
		return
	}
	start, end := w.at(n)
	number := fmt.Sprint(id)
	w.edits.wrap(len(w.stack), start, end, strings.ReplaceAll(before, "%d", number), strings.ReplaceAll(behind, "%d", number))
}

// function returns the name of the declared function that the current node is in.
func (w *goWalker) function() string {
	for _, n := range w.stack {
		if f, ok := n.(*ast.FuncDecl); ok {
			if f.Recv == nil {
				return f.Name.Name
			}
			receiver := f.Recv.List[0].Type
			if star, ok := receiver.(*ast.StarExpr); ok {
				receiver = star.X
			}
			return w.source(receiver) + "." + f.Name.Name
		}
	}
	return ""
}
