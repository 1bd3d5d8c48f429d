package lockwire_test

import (
	"strings"
	"testing"

	"github.com/railtoken/railtoken/internal/lockwire"
)

func TestLabelsAreCleaned(t *testing.T) {
	t.Parallel()
	for label, want := range map[string]string{
		"":                              "",
		"host/1234/order:audit":         "host/1234/order:audit",
		"with. dots and spaces":         "with. dots and spaces",
		"Köln 東京":                       "Köln 東京",
		"a\nb\r\x00\x1b[31m\u202ec":     "a?b???[31m?c",
		"broken \xff\xfe UTF-8":         "broken ?? UTF-8",
		strings.Repeat("x", 300):        strings.Repeat("x", 200),
		strings.Repeat("x", 199) + "é":  strings.Repeat("x", 199),
		strings.Repeat("x", 198) + "éé": strings.Repeat("x", 198) + "é",
	} {
		if got := lockwire.CleanLabel(label); got != want {
			t.Errorf("Clean(%q) = %q, want %q", label, got, want)
		}
	}
}
