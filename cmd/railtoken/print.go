package main

import (
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/railtoken/railtoken/internal/logsafe"
)

// key returns a key for a table: as it is, in quotes if that would be unreadable, or as its hash.
func (a *app) key(key string) string {
	if a.hash {
		return logsafe.Keys([]string{key})[0]
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
		return jsonKey{Key: logsafe.Keys([]string{key})[0]}
	}
	if !utf8.ValidString(key) {
		return jsonKey{Key: key, Bytes: []byte(key)}
	}
	return jsonKey{Key: key}
}

// keyOf returns the key of an argument: what a table shows.
func (a *app) keyOf(arg string) string {
	key := unquoted(arg)
	a.shown[key] = true
	return key
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
