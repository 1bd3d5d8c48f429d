package main

import (
	"fmt"
	"strings"
)

// luaKind is the kind of a token.
type luaKind int

const (
	luaName luaKind = iota
	luaKeyword
	luaNumber
	luaString
	luaSymbol
)

// luaToken is a piece of a Lua source, from start to end.
type luaToken struct {
	kind       luaKind
	text       string
	start, end int
	first      bool // of its line
}

var luaKeywords = map[string]bool{}

func init() {
	for word := range strings.FieldsSeq("and break do else elseif end false for function if in local nil not or repeat return then true until while") {
		luaKeywords[word] = true
	}
}

// luaSymbols are the symbols of more than one byte, the longer ones first.
var luaSymbols = []string{"...", "..", "==", "~=", "<=", ">="}

// luaTokens returns the tokens of a source, without blanks and comments.
func luaTokens(source string) ([]luaToken, error) {
	var tokens []luaToken
	first := true
	for i := 0; i < len(source); {
		rest := source[i:]
		switch c := source[i]; {
		case c == '\n':
			first = true
			i++
			continue
		case c == ' ' || c == '\t' || c == '\r':
			i++
			continue
		case strings.HasPrefix(rest, "--"):
			i += luaComment(rest)
			continue
		}
		kind, n := luaNext(rest)
		if n == 0 {
			return nil, fmt.Errorf("no token begins with %.20q", rest)
		}
		tokens = append(tokens, luaToken{kind: kind, text: rest[:n], start: i, end: i + n, first: first})
		first = false
		i += n
	}
	return tokens, nil
}

// luaNext returns the kind and the length of the token that a source begins with, or 0.
func luaNext(source string) (luaKind, int) {
	c := source[0]
	switch {
	case isLetter(c):
		n := span(source, func(c byte) bool { return isLetter(c) || isDigit(c) })
		if luaKeywords[source[:n]] {
			return luaKeyword, n
		}
		return luaName, n
	case isDigit(c):
		return luaNumber, span(source, func(c byte) bool { return isDigit(c) || isLetter(c) || c == '.' })
	case c == '\'' || c == '"':
		for i := 1; i < len(source); i++ {
			switch source[i] {
			case '\\':
				i++
			case c:
				return luaString, i + 1
			}
		}
		return luaString, 0
	case luaLong(source) > 0:
		return luaString, luaLong(source)
	}
	for _, symbol := range luaSymbols {
		if strings.HasPrefix(source, symbol) {
			return luaSymbol, len(symbol)
		}
	}
	if strings.IndexByte("+-*/%^#<>=(){}[];:,.", c) < 0 {
		return luaSymbol, 0
	}
	return luaSymbol, 1
}

// luaComment returns the length of the comment that a source begins with.
func luaComment(source string) int {
	if n := luaLong(source[2:]); n > 0 {
		return 2 + n
	}
	if n := strings.IndexByte(source, '\n'); n >= 0 {
		return n
	}
	return len(source)
}

// luaLong returns the length of the long bracket that a source begins with, or 0.
func luaLong(source string) int {
	level := len(source) - len(strings.TrimLeft(strings.TrimPrefix(source, "["), "="))
	level-- // the bracket
	if level < 0 || !strings.HasPrefix(source, "[") || !strings.HasPrefix(source[1+level:], "[") {
		return 0
	}
	closing := "]" + strings.Repeat("=", level) + "]"
	if n := strings.Index(source, closing); n >= 0 {
		return n + len(closing)
	}
	return 0
}

func isLetter(c byte) bool { return c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

// span returns how many bytes at the beginning of a text are of a kind.
func span(text string, is func(byte) bool) int {
	n := 0
	for n < len(text) && is(text[n]) {
		n++
	}
	return n
}
