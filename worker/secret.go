package worker

import (
	"fmt"
	"io"
	"log/slog"
	"strconv"
)

// redacted is shown instead of a Secret.
const redacted = "[redacted]"

// Secret is a password that does not appear in logs, errors or formatted output. Convert it to a string to use it.
type Secret string

// String returns "[redacted]", or "" for an empty secret.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return redacted
}

// Format writes what String returns, for every verb. fmt would otherwise show the password for verbs that do not apply
// to strings.
func (s Secret) Format(f fmt.State, verb rune) {
	text := s.String()
	if verb == 'q' || f.Flag('#') {
		text = strconv.Quote(text)
	}
	_, _ = io.WriteString(f, text) // an error could be reported only to f, which has just failed
}

// MarshalText returns what String returns, for JSON and YAML.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// LogValue returns what String returns, for slog.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }
