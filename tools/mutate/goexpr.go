package main

import (
	"go/ast"
	"go/constant"
	"go/token"
	"go/types"
)

// comparisons has, for each comparison, its negation and, if it has an order, the one with the other boundary and the function
// that stands for it.
var comparisons = map[token.Token]struct {
	negated, boundary token.Token
	function          string
}{
	token.EQL: {negated: token.NEQ},
	token.NEQ: {negated: token.EQL},
	token.LSS: {token.GEQ, token.LEQ, "mutationLess"},
	token.LEQ: {token.GTR, token.LSS, "mutationAtMost"},
	token.GTR: {token.LEQ, token.GEQ, "mutationMore"},
	token.GEQ: {token.LSS, token.GTR, "mutationAtLeast"},
}

// arithmetic has the operator that replaces each other one, and the function that stands for it.
var arithmetic = map[token.Token]struct {
	other    token.Token
	function string
}{
	token.ADD: {token.SUB, "mutationAdd"},
	token.SUB: {token.ADD, "mutationSubtract"},
	token.MUL: {token.QUO, "mutationMultiply"},
	token.QUO: {token.MUL, "mutationDivide"},
}

// expression notes the mutants of an expression, and reports whether those of its parts come next.
func (w *goWalker) expression(e ast.Expr) bool {
	if _, ok := e.(*ast.ParenExpr); ok {
		return true
	}
	known := w.p.info.Types[e]
	if known.IsType() || w.isKey(e) || w.isCapacity(e) || w.isLogged(e) {
		return false
	}
	if known.Value != nil {
		w.constant(e, known)
		return false
	}
	switch e := e.(type) {
	case *ast.BinaryExpr:
		w.binary(e)
	case *ast.CallExpr:
		w.call(e)
		if w.isCondition() {
			w.negate(e, "!"+w.source(e))
		}
	case *ast.Ident, *ast.SelectorExpr, *ast.IndexExpr, *ast.UnaryExpr, *ast.StarExpr:
		if w.isCondition() {
			w.negate(e, "!"+w.source(e))
		}
	}
	w.returnedError(e)
	return true
}

// isKey reports whether the current expression is the key of a composite literal, which must stay as it is.
func (w *goWalker) isKey(e ast.Expr) bool {
	pair, ok := w.stack[len(w.stack)-2].(*ast.KeyValueExpr)
	return ok && pair.Key == e
}

// isCondition reports whether the current expression decides something by itself: it is an operand of a condition, or a condition.
func (w *goWalker) isCondition() bool {
	e, ok := w.stack[len(w.stack)-1].(ast.Expr)
	if t := w.p.info.TypeOf(e); !ok || t == nil || !isBool(t) {
		return false
	}
	switch p := w.parent().(type) {
	case *ast.BinaryExpr:
		return p.Op == token.LAND || p.Op == token.LOR
	case *ast.IfStmt, *ast.ForStmt, *ast.ReturnStmt:
		return true
	case *ast.CaseClause:
		outer, ok := w.stack[len(w.stack)-3].(*ast.SwitchStmt)
		return ok && outer.Tag == nil
	}
	return false
}

func isBool(t types.Type) bool {
	return types.Identical(t, types.Typ[types.Bool]) || types.Identical(t, types.Typ[types.UntypedBool])
}

// negate notes that a condition is negated.
func (w *goWalker) negate(e ast.Expr, after string) {
	w.wrap(e, "condition negated", after, "((", ") != mutation(%d))")
}

// binary notes the mutants of an expression with two operands.
func (w *goWalker) binary(e *ast.BinaryExpr) {
	x, y := w.p.info.TypeOf(e.X), w.p.info.TypeOf(e.Y)
	if known, ok := comparisons[e.Op]; ok {
		if isOrdered(x) && isOrdered(y) && known.function != "" {
			w.asCall(e, "boundary", known.boundary, known.function)
		}
		if isBool(w.p.info.TypeOf(e)) {
			w.negate(e, w.source(e.X)+" "+known.negated.String()+" "+w.source(e.Y))
		}
		return
	}
	if known, ok := arithmetic[e.Op]; ok && isNumber(x) && isNumber(y) {
		w.asCall(e, "arithmetic", known.other, known.function)
		return
	}
	if (e.Op == token.LAND || e.Op == token.LOR) && isBool(w.p.info.TypeOf(e)) {
		// a && b is !(!a || !b): with all three of them negated, one becomes the other, and b is looked at only if it must be.
		other := map[token.Token]token.Token{token.LAND: token.LOR, token.LOR: token.LAND}[e.Op]
		id := w.add(e, "and for or", w.source(e.X)+" "+other.String()+" "+w.source(e.Y))
		if id == 0 {
			return
		}
		for _, part := range []ast.Expr{e.X, e.Y, e} {
			start, end := w.at(part)
			w.edits.wrap(len(w.stack), start, end, "((", ") != mutation("+itoa(id)+"))")
		}
	}
}

// asCall notes another operator, and replaces the expression by the call of a function that knows both.
func (w *goWalker) asCall(e *ast.BinaryExpr, operator string, other token.Token, function string) {
	id := w.add(e, operator, w.source(e.X)+" "+other.String()+" "+w.source(e.Y))
	if id == 0 {
		return
	}
	start, end := w.at(e)
	w.edits.wrap(len(w.stack), start, end, function+"("+itoa(id)+", ", ")")
	at := w.p.fset.Position(e.OpPos).Offset
	w.edits.replace(at, at+len(e.Op.String()), ",")
}

// call notes that min and max are exchanged.
func (w *goWalker) call(e *ast.CallExpr) {
	name, ok := e.Fun.(*ast.Ident)
	if !ok || len(e.Args) < 2 || e.Ellipsis.IsValid() {
		return
	}
	if _, ok := w.p.info.Uses[name].(*types.Builtin); !ok || name.Name != "min" && name.Name != "max" {
		return
	}
	other, function := "max", "mutationMin"
	if name.Name == "max" {
		other, function = "min", "mutationMax"
	}
	start, end := w.at(name)
	id := w.add(e, "min for max", other+w.text[end:w.p.fset.Position(e.End()).Offset])
	if id != 0 {
		w.edits.replace(start, w.p.fset.Position(e.Lparen).Offset+1, function+"("+itoa(id)+", ")
	}
}

// constant notes the mutants of a constant: a number that is one larger or smaller, a duration that is halved, a truth negated.
func (w *goWalker) constant(e ast.Expr, known types.TypeAndValue) {
	value, t := known.Value, known.Type
	switch {
	case value.Kind() == constant.Bool && isBool(t):
		w.wrap(e, "constant", constant.MakeBool(!constant.BoolVal(value)).String(), "(", " != mutation(%d))")
		return
	case value.Kind() != constant.Int:
		return
	}
	var name string
	if types.TypeString(t, nil) == "time.Duration" {
		name = "mutationDuration"
		if constant.Sign(value) != 0 {
			w.wrap(e, "constant", w.source(e)+" / 2", "mutationHalf(%d, ", ")")
			return
		}
	} else if basic, ok := types.Default(t).(*types.Basic); ok && basic.Info()&types.IsNumeric != 0 {
		name = basic.Name()
	} else {
		return // the members of a list of names
	}
	w.wrap(e, "constant", w.source(e)+" + 1", "mutationPlusOne["+name+"](%d, ", ")")
	if constant.Sign(value) > 0 {
		w.wrap(e, "constant", w.source(e)+" - 1", "mutationMinusOne["+name+"](%d, ", ")")
	}
}

// isCapacity reports whether the current expression is a size of make that only costs or saves memory.
func (w *goWalker) isCapacity(e ast.Expr) bool {
	call, ok := w.parent().(*ast.CallExpr)
	if !ok {
		return false
	}
	name, ok := call.Fun.(*ast.Ident)
	if !ok || name.Name != "make" {
		return false
	}
	_, isMap := w.p.info.TypeOf(call).Underlying().(*types.Map)
	return isMap || len(call.Args) == 3 && call.Args[2] == e
}

// isLogged reports whether the current expression is an argument of a call that logs: a text for people, or what it names.
func (w *goWalker) isLogged(e ast.Expr) bool {
	call, ok := w.parent().(*ast.CallExpr)
	if !ok || call.Fun == e {
		return false
	}
	method, ok := call.Fun.(*ast.SelectorExpr)
	return ok && types.TypeString(w.p.info.TypeOf(method.X), nil) == "*log/slog.Logger"
}

// returnedError notes that a returned error is left out.
func (w *goWalker) returnedError(e ast.Expr) {
	statement, ok := w.stack[len(w.stack)-2].(*ast.ReturnStmt)
	if !ok || w.p.info.Types[e].IsNil() {
		return
	}
	results := w.results()
	if results == nil || results.Len() != len(statement.Results) {
		return
	}
	for i, result := range statement.Results {
		if result == e && types.Identical(results.At(i).Type(), types.Universe.Lookup("error").Type()) {
			w.wrap(e, "error left out", "nil", "mutationNil(%d, ", ")")
		}
	}
}

// results returns the results of the function that the current node is in.
func (w *goWalker) results() *types.Tuple {
	for i := len(w.stack) - 1; i >= 0; i-- {
		var t types.Type
		switch f := w.stack[i].(type) {
		case *ast.FuncDecl:
			t = w.p.info.Defs[f.Name].Type()
		case *ast.FuncLit:
			t = w.p.info.TypeOf(f)
		default:
			continue
		}
		signature, _ := t.(*types.Signature)
		return signature.Results()
	}
	return nil
}

func isOrdered(t types.Type) bool {
	basic, ok := t.Underlying().(*types.Basic)
	return ok && basic.Info()&types.IsOrdered != 0
}

func isNumber(t types.Type) bool {
	basic, ok := t.Underlying().(*types.Basic)
	return ok && basic.Info()&(types.IsInteger|types.IsFloat) != 0
}
