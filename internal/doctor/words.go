package doctor

import (
	"strings"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/internal/line"
)

// quoted returns text as one argument of a shell.
func quoted(text string) string {
	if text != "" && strings.Trim(text,
		"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789:_./@%+,-") == "" {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

func entryOf(t delayqueue.Task) string { return line.Task(t).Entry() }
