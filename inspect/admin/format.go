package admin

import (
	"encoding/base64"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/railtoken/railtoken/delayqueue"
)

// ago returns how long ago something was, in two units at most.
func ago(t time.Time) string { return span(time.Since(t)) }

// span returns a duration in two units at most.
func span(d time.Duration) string {
	d = max(d, 0)
	s := int(d.Seconds())
	switch {
	case s < 60:
		return strconv.Itoa(s) + " s"
	case s < 3600:
		return fmt.Sprintf("%d min %02d s", s/60, s%60)
	case s < 48*3600:
		return fmt.Sprintf("%d h %02d min", s/3600, s/60%60)
	default:
		return fmt.Sprintf("%d d %02d h", s/86400, s/3600%24)
	}
}

// num returns a number with a thin space between thousands.
func num(n int) string {
	text := strconv.Itoa(n)
	for i := len(text) - 3; i > 0 && text[i-1] != '-'; i -= 3 {
		text = text[:i] + "\u202f" + text[i:]
	}
	return text
}

// plainLine returns text in one line, without what could be taken for something else.
func plainLine(text string, most int) string {
	text = strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return '·'
		}
		return r
	}, strings.ReplaceAll(text, "\n", "; "))
	return shorten(text, most)
}

func taskQuery(t delayqueue.Task) string {
	return "queue=" + url.QueryEscape(t.Queue) + "&task=" + url.QueryEscape(t.ID)
}

// taskID returns the value of a form's field that names a task, or a queue: base64, because a browser changes line ends.
func taskID(t delayqueue.Task) string {
	encode := base64.RawURLEncoding.EncodeToString
	return encode([]byte(t.Queue)) + "." + encode([]byte(t.ID))
}

// taskOfID returns the task of a taskID.
func taskOfID(id string) (delayqueue.Task, error) {
	first, second, _ := strings.Cut(id, ".")
	queue, err := base64.RawURLEncoding.DecodeString(first)
	if err != nil {
		return delayqueue.Task{}, err
	}
	name, err := base64.RawURLEncoding.DecodeString(second)
	return delayqueue.Task{Queue: string(queue), ID: string(name)}, err
}
