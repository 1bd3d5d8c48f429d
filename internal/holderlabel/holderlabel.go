// Package holderlabel cleans the labels of lock holders, which any program may have written.
package holderlabel

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxSize is the maximum size of a clean label in bytes.
const MaxSize = 200

// Clean returns a label in valid, printable UTF-8 of at most MaxSize bytes.
func Clean(label string) string {
	clean := strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, label)
	for len(clean) > MaxSize {
		_, size := utf8.DecodeLastRuneInString(clean)
		clean = clean[:len(clean)-size]
	}
	return clean
}
