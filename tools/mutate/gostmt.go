package main

import (
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"strconv"
)

func itoa(n int) string { return strconv.Itoa(n) }

// statement notes that a statement of a list is left out.
func (w *goWalker) statement(s ast.Stmt) {
	if !w.inList(s) {
		return
	}
	switch s := s.(type) {
	case *ast.ExprStmt:
		if call, ok := s.X.(*ast.CallExpr); ok {
			if name, ok := call.Fun.(*ast.Ident); ok && name.Name == "panic" {
				return // the function may end in it
			}
		}
	case *ast.AssignStmt:
		if s.Tok == token.DEFINE || w.isBlank(s) {
			return
		}
	case *ast.DeferStmt:
		if w.onlyFrees(s.Call) {
			return
		}
	case *ast.IncDecStmt, *ast.GoStmt, *ast.SendStmt:
	case *ast.BranchStmt:
		if s.Tok != token.BREAK && s.Tok != token.CONTINUE {
			return
		}
	case *ast.ReturnStmt:
		if !w.mayGoOn() {
			return
		}
	default:
		return
	}
	w.wrap(s, "statement left out", "", "if !mutation(%d) { ", " }")
}

// endsByItself has the functions that make what ends by itself: to end it before frees memory, and no test can see that.
var endsByItself = map[string]bool{
	"context.WithTimeout": true, "context.WithDeadline": true, "time.NewTimer": true, "time.NewTicker": true,
}

// onlyFrees reports whether a call, deferred in the function that has made it, ends a timer or a context that ends by itself.
func (w *goWalker) onlyFrees(call *ast.CallExpr) bool {
	what := call.Fun
	if method, ok := what.(*ast.SelectorExpr); ok && method.Sel.Name == "Stop" {
		what = method.X
	}
	name, ok := what.(*ast.Ident)
	if !ok {
		return false
	}
	frees := false
	ast.Inspect(w.stack[0], func(n ast.Node) bool {
		assigned, ok := n.(*ast.AssignStmt)
		if !ok || len(assigned.Rhs) != 1 || !slices.ContainsFunc(assigned.Lhs, func(left ast.Expr) bool {
			defined, ok := left.(*ast.Ident)
			return ok && w.p.info.Defs[defined] != nil && w.p.info.Defs[defined] == w.p.info.Uses[name]
		}) {
			return true
		}
		if made, ok := assigned.Rhs[0].(*ast.CallExpr); ok {
			if maker, ok := made.Fun.(*ast.SelectorExpr); ok {
				function, ok := w.p.info.Uses[maker.Sel].(*types.Func)
				frees = frees || ok && endsByItself[function.FullName()]
			}
		}
		return true
	})
	return frees
}

// inList reports whether the current statement is one of a list of statements.
func (w *goWalker) inList(s ast.Stmt) bool {
	switch p := w.stack[len(w.stack)-2].(type) {
	case *ast.BlockStmt:
		return true
	case *ast.CaseClause:
		return slices.Contains(p.Body, s)
	case *ast.CommClause:
		return slices.Contains(p.Body, s)
	}
	return false
}

func (w *goWalker) isBlank(s *ast.AssignStmt) bool {
	for _, left := range s.Lhs {
		if name, ok := left.(*ast.Ident); !ok || name.Name != "_" {
			return false
		}
	}
	return true
}

// mayGoOn reports whether a function compiles without the return statement under way: another one comes later, or none need come.
func (w *goWalker) mayGoOn() bool {
	if results := w.results(); results == nil || results.Len() == 0 {
		return true
	}
	for i := len(w.stack) - 2; i > 0; i-- {
		switch n := w.stack[i].(type) {
		case *ast.IfStmt:
			return n.Else == nil
		case *ast.ForStmt, *ast.RangeStmt:
			return true
		case *ast.FuncDecl, *ast.FuncLit, *ast.CaseClause, *ast.CommClause:
			return false
		}
	}
	return false
}
