package main

import (
	"go/ast"
	"go/token"
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
	case *ast.IncDecStmt, *ast.DeferStmt, *ast.GoStmt, *ast.SendStmt:
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
