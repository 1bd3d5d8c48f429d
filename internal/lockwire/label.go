package lockwire

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxLabel is the maximum size of a clean label in bytes.
const MaxLabel = 200

// CleanLabel returns a label in valid, printable UTF-8 of at most MaxSize bytes.
func CleanLabel(label string) string {
	clean := strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, label)
	for len(clean) > MaxLabel {
		_, size := utf8.DecodeLastRuneInString(clean)
		clean = clean[:len(clean)-size]
	}
	return clean
}
