package etcdlock

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxLabelSize is how many bytes of a label are shown.
const maxLabelSize = 200

// cleanLabel returns a label in printable UTF-8 of at most maxLabelSize bytes. Another program may have written it.
func cleanLabel(label string) string {
	clean := strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, label)
	for len(clean) > maxLabelSize {
		_, size := utf8.DecodeLastRuneInString(clean)
		clean = clean[:len(clean)-size]
	}
	return clean
}
