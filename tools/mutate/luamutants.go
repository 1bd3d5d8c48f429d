package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/yuin/gopher-lua/parse"
)

// luaMutant is a mutant of a Lua source, and the edit that makes it.
type luaMutant struct {
	mutant
	edit edit
}

// luaOther has, for each operator, those that take its place.
var luaOther = map[string][]struct{ operator, text string }{
	"<": {{"boundary", "<="}, {"condition negated", ">="}}, "<=": {{"boundary", "<"}, {"condition negated", ">"}},
	">": {{"boundary", ">="}, {"condition negated", "<="}}, ">=": {{"boundary", ">"}, {"condition negated", "<"}},
	"==": {{"condition negated", "~="}}, "~=": {{"condition negated", "=="}},
	"and": {{"and for or", "or"}}, "or": {{"and for or", "and"}}, "not": {{"condition negated", ""}},
	"true": {{"constant", "false"}}, "false": {{"constant", "true"}}, "break": {{"statement left out", "do end"}},
}

// mutateLua returns the mutants of a source, except those that are no Lua.
func mutateLua(file, source string) ([]luaMutant, error) {
	tokens, err := luaTokens(source)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	w := &luaWalker{file: file, source: source, tokens: tokens}
	for i := range tokens {
		w.visit(i)
	}
	var valid []luaMutant
	for _, m := range w.mutants {
		if isLua((&edits{m.edit}).apply(source)) {
			valid = append(valid, m)
		}
	}
	return valid, nil
}

func isLua(source string) bool {
	_, err := parse.Parse(strings.NewReader(source), "")
	return err == nil
}

// luaWalker walks through the tokens of one source and notes its mutants.
type luaWalker struct {
	file, source string
	tokens       []luaToken
	function     string // the last one that began at the margin
	mutants      []luaMutant
}

// visit notes the mutants of which a token is the first.
func (w *luaWalker) visit(i int) {
	t := w.tokens[i]
	w.enter(i)
	for _, other := range luaOther[t.text] {
		if t.kind != luaString {
			w.add(i, i, other.operator, other.text)
		}
	}
	switch {
	case t.kind == luaNumber:
		if n, err := strconv.ParseInt(t.text, 10, 64); err == nil {
			w.add(i, i, "constant", strconv.FormatInt(n+1, 10))
			if n > 0 && !w.isFirstPosition(i) {
				w.add(i, i, "constant", strconv.FormatInt(n-1, 10))
			}
		}
	case (t.text == "+" || t.text == "-") && t.kind == luaSymbol && i > 0 && w.isOperand(i-1):
		w.add(i, i, "arithmetic", map[string]string{"+": "-", "-": "+"}[t.text])
	case t.text == "-" && t.kind == luaSymbol:
		w.add(i, i, "arithmetic", " ")
	case t.text == "if" || t.text == "elseif" || t.text == "while":
		w.condition(i)
	case t.text == "return" && t.kind == luaKeyword:
		if last := w.endOfList(i + 1); last > i && !w.isConstant(i+1, last) {
			w.add(i, last, "value left out", "return nil")
		}
	case t.first && t.kind == luaName:
		w.statement(i)
	}
}

// startArgument is which argument of a function of package string is where it starts. Position 0 is the same as 1 there.
var startArgument = map[string]int{"sub": 2, "find": 3}

// isFirstPosition reports whether a number is the position 1 at which a function of package string starts.
func (w *luaWalker) isFirstPosition(i int) bool {
	if w.tokens[i].text != "1" {
		return false
	}
	depth, argument := 0, 1
	for k := i - 1; k > 1; k-- {
		switch w.tokens[k].text {
		case ")", "}", "]":
			depth++
		case "(", "{", "[":
			depth--
		case ",":
			if depth == 0 {
				argument++
			}
		}
		if depth < 0 {
			return w.tokens[i-1].text == "," && w.tokens[k-2].text == "." && startArgument[w.tokens[k-1].text] == argument
		}
	}
	return false
}

// enter notes the name of a function that begins at the margin.
func (w *luaWalker) enter(i int) {
	t := w.tokens[i]
	if t.start > 0 && w.source[t.start-1] != '\n' {
		return
	}
	if t.text == "local" && i+2 < len(w.tokens) && w.tokens[i+1].text == "function" {
		w.function = w.tokens[i+2].text
	} else if t.text != "end" {
		w.function = ""
	}
}

// condition notes that a branch is never taken, or a condition without comparisons and parts is negated.
func (w *luaWalker) condition(i int) {
	last := i + 1
	for last < len(w.tokens) && w.tokens[last].text != "then" && w.tokens[last].text != "do" {
		last++
	}
	last--
	if last == i || last+1 >= len(w.tokens) {
		return
	}
	w.add(i+1, last, "branch left out", "false")
	for k := i + 1; k <= last; k++ {
		if len(luaOther[w.tokens[k].text]) > 0 && w.tokens[k].kind != luaString {
			return
		}
	}
	w.add(i+1, last, "condition negated", "not ("+w.text(i+1, last)+")")
}

// statement notes that a call or an assignment at the beginning of a line is left out.
func (w *luaWalker) statement(i int) {
	if i > 0 && !w.mayEndStatement(i-1) {
		return
	}
	last := w.endOfList(i) // of the targets of an assignment, or the call
	if last+1 < len(w.tokens) && w.tokens[last+1].text == "=" {
		last = w.endOfList(last + 2)
	} else if w.tokens[last].text != ")" {
		return
	}
	w.add(i, last, "statement left out", "do end")
}

// mayEndStatement reports whether a statement can begin after a token.
func (w *luaWalker) mayEndStatement(i int) bool {
	switch t := w.tokens[i]; t.text {
	case "then", "do", "else", "end", ")", "}", "]", "nil", "true", "false", "repeat", "break", "...", ";":
		return true
	default:
		return t.kind == luaName || t.kind == luaNumber || t.kind == luaString
	}
}

// isOperand reports whether a token ends an operand.
func (w *luaWalker) isOperand(i int) bool {
	t := w.tokens[i]
	return t.kind == luaName || t.kind == luaNumber || t.kind == luaString || t.text == ")" || t.text == "]" || t.text == "}"
}

// isConstant reports whether the tokens from first to last are one constant that has mutants of its own, or nil.
func (w *luaWalker) isConstant(first, last int) bool {
	t := w.tokens[first]
	return first == last && (t.kind == luaNumber || t.text == "true" || t.text == "false" || t.text == "nil")
}

// endOfList returns the last token of the list of expressions that begins with token i; i-1 if there is none.
func (w *luaWalker) endOfList(i int) int {
	last := i - 1
	for k := i; k < len(w.tokens); k++ {
		t := w.tokens[k]
		switch {
		case t.text == "(" || t.text == "{" || t.text == "[":
			k = w.closing(k)
		case t.text == "function":
			k = w.closing(k)
		case t.kind == luaKeyword && !isLuaOperator(t.text) && t.text != "nil" && t.text != "true" && t.text != "false", t.text == "=", t.text == ";":
			return last
		case k > i && isOperandStart(t) && w.isOperand(last):
			return last // the next statement
		}
		last = min(k, len(w.tokens)-1)
	}
	return last
}

func isOperandStart(t luaToken) bool {
	return t.kind == luaName || t.kind == luaNumber || t.kind == luaString || t.text == "nil" || t.text == "true" || t.text == "false"
}

func isLuaOperator(word string) bool { return word == "and" || word == "or" || word == "not" }

// closing returns the token that closes the bracket or the function at token i.
func (w *luaWalker) closing(i int) int {
	depth := 0
	for k := i; k < len(w.tokens); k++ {
		switch w.tokens[k].text {
		case "(", "{", "[", "function", "if", "do", "repeat":
			depth++
		case ")", "}", "]", "end", "until":
			depth--
		}
		if depth == 0 {
			return k
		}
	}
	return len(w.tokens) - 1
}

// text returns the source from one token to another.
func (w *luaWalker) text(first, last int) string {
	return w.source[w.tokens[first].start:w.tokens[last].end]
}

// add notes that other text takes the place of the tokens from first to last.
func (w *luaWalker) add(first, last int, operator, text string) {
	start, end := w.tokens[first].start, w.tokens[last].end
	begin := strings.LastIndexByte(w.source[:start], '\n') + 1
	line, _, _ := strings.Cut(w.source[begin:], "\n")
	from, to := start, end
	if first == last { // shown with what is beside it
		from, to = w.tokens[max(first-1, 0)].start, w.tokens[min(last+1, len(w.tokens)-1)].end
	}
	w.mutants = append(w.mutants, luaMutant{
		mutant: mutant{
			File: w.file, Line: strings.Count(w.source[:start], "\n") + 1, Func: w.function, Operator: operator,
			Before: short(w.source[from:to]), After: short(w.source[from:start] + text + w.source[end:to]), Text: strings.TrimSpace(line),
		},
		edit: edit{start: start, end: end, text: text},
	})
}
