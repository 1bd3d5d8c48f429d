package restartguard

import (
	_ "embed"
	"fmt"
	"strconv"
	"time"
)

//go:embed lua/identity.lua
var identitySource string

// otherServer is the first element of a reply that carries facts.
const otherServer = "other server"

// Script returns a Lua script that can call other_server(expected), which lua/identity.lua describes.
func Script(source string) string { return identitySource + source }

// ParseReply parses the reply of a [Script]. If the script ran in another server than expected, other is true, and f
// describes that server, for [Node.Reject]. Otherwise the reply is the script's own.
func ParseReply(reply any, sent, received time.Time) (f Facts, other bool, err error) {
	parts, ok := reply.([]any)
	if !ok || len(parts) == 0 || parts[0] != otherServer {
		return Facts{}, false, nil
	}
	text := make([]string, 0, 6)
	for _, part := range parts {
		if s, ok := part.(string); ok {
			text = append(text, s)
		}
	}
	if len(text) != 6 || len(parts) != 6 {
		return Facts{}, true, fmt.Errorf("locking: the facts of a server have %d parts, %d of them text: "+
			"both must be 6", len(parts), len(text))
	}
	clock, err := parseClock(text[4], text[5])
	if err != nil {
		return Facts{}, true, err
	}
	f, err = ParseFacts(text[1], text[2], text[3])
	if err != nil {
		return Facts{}, true, fmt.Errorf("locking: the facts of a server cannot be read: %w", err)
	}
	return f.Timed(clock, sent, received), true, nil
}

// parseClock parses the reply to TIME: seconds since 1970, and microseconds.
func parseClock(seconds, micros string) (time.Time, error) {
	s, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("locking: TIME says %.40q seconds: %w", seconds, err)
	}
	us, err := strconv.ParseInt(micros, 10, 64)
	if err != nil || us < 0 || us > 999_999 {
		return time.Time{}, fmt.Errorf("locking: TIME says %.40q microseconds: there are 0 to 999999", micros)
	}
	return time.Unix(s, us*1000), nil
}
