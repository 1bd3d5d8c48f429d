package traces

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// line is a command that Redis has executed, as MONITOR shows it.
type line struct {
	at   time.Time
	from string // the address of the client; "lua" if a script has called it
	args []string
}

// parseLine parses what MONITOR says of a command: its time, the database and the client, and its arguments, each in quotes.
func parseLine(text string) (line, error) {
	at, rest, _ := strings.Cut(strings.TrimPrefix(text, "+"), " [")
	source, rest, ok := strings.Cut(rest, "] ")
	seconds, micros, dotted := strings.Cut(at, ".")
	s, err := strconv.ParseInt(seconds, 10, 64)
	us, err2 := strconv.ParseInt(micros, 10, 64)
	if !ok || !dotted || err != nil || err2 != nil {
		return line{}, fmt.Errorf("traces: %q is no line of MONITOR", text)
	}
	_, from, _ := strings.Cut(source, " ")
	l := line{at: time.Unix(s, us*1000), from: from}
	for rest != "" {
		quoted, err := strconv.QuotedPrefix(rest)
		if err != nil {
			return line{}, fmt.Errorf("traces: %q is no argument in quotes: %w", rest, err)
		}
		arg, err := strconv.Unquote(quoted)
		if err != nil {
			return line{}, fmt.Errorf("traces: cannot read %s: %w", quoted, err)
		}
		l.args = append(l.args, arg)
		rest = strings.TrimPrefix(rest[len(quoted):], " ")
	}
	if len(l.args) == 0 {
		return line{}, fmt.Errorf("traces: %q has no command", text)
	}
	return l, nil
}

// inScript reports whether a script has called the command.
func (l *line) inScript() bool { return l.from == "lua" }

// name returns the command in capital letters.
func (l *line) name() string { return strings.ToUpper(l.args[0]) }

// step is what Redis does at once: a command, or a script with the commands in it.
type step struct {
	line
	inner []line
}

// call returns the KEYS and the ARGV of a script; nothing if the step is none.
func (s *step) call() (keys, argv []string) {
	if len(s.args) < 3 || s.name() != "EVALSHA" && s.name() != "EVAL" {
		return nil, nil
	}
	n, err := strconv.Atoi(s.args[2])
	if err != nil || n < 0 || len(s.args) < 3+n {
		return nil, nil
	}
	return s.args[3 : 3+n], s.args[3+n:]
}

// stepsOf puts the commands of each script behind it.
func stepsOf(lines []line) (steps []step) {
	for _, l := range lines {
		if last := len(steps) - 1; l.inScript() && last >= 0 {
			steps[last].inner = append(steps[last].inner, l)
			continue
		}
		steps = append(steps, step{line: l})
	}
	return steps
}
