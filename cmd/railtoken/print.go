package main

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/railtoken/railtoken/internal/redact"
)

// printJSON prints a value for programs.
func (a *app) printJSON(v any) error {
	enc := json.NewEncoder(a.out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// table prints rows under a head, or a sentence if there are none.
func (a *app) table(none, head string, rows [][]string) error {
	if len(rows) == 0 {
		_, err := fmt.Fprintln(a.out, none)
		return err
	}
	w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, strings.Join(strings.Fields(head), "\t"))
	for _, row := range rows {
		fmt.Fprintln(w, strings.Join(row, "\t"))
	}
	return w.Flush()
}

// key returns a key for a table: as it is, in quotes if that would be unreadable, or as its hash.
func (a *app) key(key string) string {
	if a.hash {
		return redact.Keys([]string{key})[0]
	}
	return plain(key)
}

// jsonKey is a key in JSON. Bytes is set if the key is not text.
type jsonKey struct {
	Key   string `json:"key"`
	Bytes []byte `json:"key_bytes,omitempty"`
}

// jsonKey returns a key for JSON.
func (a *app) jsonKey(key string) jsonKey {
	if a.hash {
		return jsonKey{Key: redact.Keys([]string{key})[0]}
	}
	if !utf8.ValidString(key) {
		return jsonKey{Key: key, Bytes: []byte(key)}
	}
	return jsonKey{Key: key}
}

// plain returns text for a terminal: in quotes if it is empty, or has anything that could be taken for something else.
func plain(text string) string {
	odd := func(r rune) bool { return r == utf8.RuneError || r == ' ' || r == '"' || !unicode.IsPrint(r) }
	if text == "" || strings.ContainsFunc(text, odd) {
		return strconv.Quote(text)
	}
	return text
}

// line returns text for a terminal as one line, without control characters.
func line(text string) string {
	return strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, strings.ReplaceAll(text, "\n", "; "))
}

// keyOf returns the key of an argument: what a table shows.
func (a *app) keyOf(arg string) string {
	if len(arg) > 1 && arg[0] == '"' {
		if key, err := strconv.Unquote(arg); err == nil {
			arg = key
		}
	}
	a.shown[arg] = true
	return arg
}

// ago returns how long ago something was.
func ago(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return brief(time.Since(t))
}

// brief returns a duration in two units at most.
func brief(d time.Duration) string {
	d = max(d, 0)
	switch {
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	default:
		return fmt.Sprintf("%dd%02dh", int(d.Hours())/24, int(d.Hours())%24)
	}
}

// or returns text, or a dash for none.
func or(text string) string {
	if text == "" {
		return "-"
	}
	return line(text)
}

// moment returns a time for JSON; nil when it is zero.
func moment(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}
