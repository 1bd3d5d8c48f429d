package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"unicode"
	"unicode/utf8"

	"golang.org/x/term"
)

// terminal is where a command prints. Names, labels, reasons and errors come from tasks, workers and other programs, so nothing that
// reaches a terminal through it can move the cursor, change colours, turn text around or forge a line: see harmless.
// Its methods may not be called at the same time.
type terminal struct {
	w   io.Writer
	err error // the first one
}

// printf prints a format with arguments that are made harmless. The format itself is the command's own.
func (t *terminal) printf(format string, args ...any) {
	safe := make([]any, len(args))
	for i, arg := range args {
		safe[i] = harmless(arg)
	}
	t.write(fmt.Sprintf(format, safe...))
}

// failure prints the text of an error. Its further lines are indented, so that none of them passes for a line of the command.
func (t *terminal) failure(text string) {
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = line(lines[i])
	}
	t.write("railtoken: " + strings.Join(lines, "\n  ") + "\n")
}

// table prints rows under a head, or a sentence if there are none.
func (t *terminal) table(none, head string, rows [][]string) {
	if len(rows) == 0 {
		t.printf("%s\n", none)
		return
	}
	w := tabwriter.NewWriter(t, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, strings.Join(strings.Fields(head), "\t"))
	for _, row := range rows {
		cells := make([]string, len(row))
		for i, cell := range row {
			cells[i] = line(cell)
		}
		fmt.Fprintln(w, strings.Join(cells, "\t"))
	}
	_ = w.Flush() // the terminal keeps the error
}

// json prints a value for programs. Characters that do not print are escaped, which changes no value.
func (t *terminal) json(v any) error {
	var text strings.Builder
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("print JSON: %w", err)
	}
	var b strings.Builder
	for _, r := range text.String() {
		switch {
		case r == '\n' || unicode.IsPrint(r):
			b.WriteRune(r)
		case r > 0xffff:
			high, low := (r-0x10000)>>10, (r-0x10000)&0x3ff
			fmt.Fprintf(&b, `\u%04x\u%04x`, 0xd800+high, 0xdc00+low)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	t.write(b.String())
	return nil
}

// progress replaces the last line of a screen, and prints nothing elsewhere.
func (t *terminal) progress(text string) {
	if t.screen() != nil {
		t.write("\r\x1b[K" + line(text))
	}
}

// clear clears a screen, and prints nothing elsewhere.
func (t *terminal) clear() {
	if t.screen() != nil {
		t.write("\x1b[H\x1b[2J")
	}
}

// screen returns the file of a screen that a person looks at; nil if this is none.
func (t *terminal) screen() *os.File {
	if file, ok := t.w.(*os.File); ok && term.IsTerminal(int(file.Fd())) {
		return file
	}
	return nil
}

// Write writes bytes as they are: it is for what cobra and the table make.
func (t *terminal) Write(p []byte) (int, error) {
	n, err := t.w.Write(p)
	if t.err == nil {
		t.err = err
	}
	return n, err
}

func (t *terminal) write(text string) { _, _ = t.Write([]byte(text)) }

// harmless returns an argument of a format as it is, or as one line without control characters if it is text.
func harmless(arg any) any {
	switch v := arg.(type) {
	case error:
		return line(v.Error())
	case fmt.Stringer:
		return line(v.String())
	}
	if v := reflect.ValueOf(arg); v.Kind() == reflect.String {
		return line(v.String())
	}
	return arg
}

// plain returns a name for a terminal: in quotes if it is empty, or has anything that could be taken for something else.
func plain(text string) string {
	odd := func(r rune) bool { return r == utf8.RuneError || r == ' ' || r == '"' || !unicode.IsPrint(r) }
	if text == "" || strings.ContainsFunc(text, odd) {
		return strconv.Quote(text)
	}
	return text
}

// unquoted returns the name that plain shows.
func unquoted(text string) string {
	if len(text) > 1 && text[0] == '"' {
		if name, err := strconv.Unquote(text); err == nil {
			return name
		}
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

// completions returns the names that no shell changes or runs, in the form that a table shows. A shell inserts a completion as it is,
// and evaluates the line when it completes the next word.
func completions(names []string) []string {
	odd := func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("_-./:@%+=,", r)
	}
	return slices.DeleteFunc(names, func(name string) bool { return name == "" || strings.ContainsFunc(name, odd) })
}
