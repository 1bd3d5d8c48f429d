package worker

import (
	"fmt"
	"io"
	"log/slog"
	"strconv"
)

// redacted is what a Secret shows of itself.
const redacted = "[redacted]"

// Secret is a password that does not show in logs, errors or any format. Convert it to string to use it.
type Secret string

// String returns "[redacted]", or "" for an empty secret.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return redacted
}

// Format writes what String returns, for every verb: fmt would show the password itself for one that is wrong for a
// string.
func (s Secret) Format(f fmt.State, verb rune) {
	text := s.String()
	if verb == 'q' || f.Flag('#') {
		text = strconv.Quote(text)
	}
	_, _ = io.WriteString(f, text) // the only way to report an error is the one that fails
}

// MarshalText returns what String returns, for JSON and YAML.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// LogValue returns what String returns, for slog.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }
