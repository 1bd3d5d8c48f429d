package worker

import "log/slog"

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

// GoString returns what String returns, for %#v.
func (s Secret) GoString() string { return `"` + s.String() + `"` }

// MarshalText returns what String returns, for JSON and YAML.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// LogValue returns what String returns, for slog.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }
