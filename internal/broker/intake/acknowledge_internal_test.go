package intake

import (
	"errors"
	"reflect"
	"testing"

	"github.com/railtoken/railtoken/internal/colocated"
	"github.com/railtoken/railtoken/internal/ends"
)

func TestAnAcknowledgementSaysWhatItHasDone(t *testing.T) {
	t.Parallel()
	numbers := func(n ...int64) (list []any) {
		for _, one := range n {
			list = append(list, one)
		}
		return list
	}
	woken := []any{int64(2), int64(3), int64(4), "a", "b"}
	for name, tt := range map[string]struct {
		reply any
		want  acknowledged
	}{
		"done":                {ackDone, acknowledged{end: ackDone}},
		"nothing else":        {numbers(ackOver, 0, 0, 0), acknowledged{end: ackOver}},
		"lost":                {numbers(ackLost, 2, 0, 0), acknowledged{ackLost, colocated.Outcome{Lost: 2}}},
		"taken by a stranger": {numbers(ackLost, -2, 0, 0), acknowledged{ackLost, colocated.Outcome{Lost: 2, Foreign: true}}},
		"subscribed":          {numbers(ackDone, 0, 1, 0), acknowledged{end: ackDone, Outcome: colocated.Outcome{Notify: true}}},
		"parked":              {numbers(ackDone, 0, 0, 1), acknowledged{end: ackDone, Outcome: colocated.Outcome{Parked: true}}},
		"woken": {
			append(numbers(ackOver, 0, 0, 0), woken, []any{int64(5), int64(0), int64(0)}),
			acknowledged{ackOver, colocated.Outcome{Woken: []colocated.Woken{{Key: 2, Left: 3, Pending: 4, Entries: []string{"a", "b"}}, {Key: 5}}}},
		},
	} {
		if got, err := readAcknowledged(tt.reply, nil); err != nil || !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s: %+v, %v; want %+v", name, got, err, tt.want)
		}
	}
	for name, reply := range map[string]any{
		"nothing": nil, "text": "x", "short": numbers(0, 0, 0), "no number": []any{int64(0), int64(0), "x", int64(0)},
		"woken, no list": append(numbers(0, 0, 0, 0), "x"), "woken, short": append(numbers(0, 0, 0, 0), numbers(1, 2)),
		"woken, no key":    append(numbers(0, 0, 0, 0), []any{"x", int64(0), int64(0)}),
		"woken, none left": append(numbers(0, 0, 0, 0), []any{int64(0), "x", int64(0)}),
		"woken, no count":  append(numbers(0, 0, 0, 0), []any{int64(0), int64(0), "x"}),
	} {
		if got, err := readAcknowledged(reply, nil); !errors.Is(err, errReply) || !reflect.DeepEqual(got.Woken, []colocated.Woken(nil)) && name[:5] != "woken" {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	failed := errors.New("no answer")
	if _, err := readAcknowledged(nil, failed); !errors.Is(err, failed) {
		t.Error(err)
	}
}

func TestTheMarksOfAnEndAreThoseOfItsQueue(t *testing.T) {
	t.Parallel()
	if got := (&Acknowledgement{Queue: "q"}).marks(); got != ends.ArchivedMarks("q") {
		t.Errorf("without an end they are %q", got)
	}
	if got := (&Acknowledgement{Queue: "q", Ending: &ends.Ending{Key: "marks"}}).marks(); got != "marks" {
		t.Errorf("they are %q", got)
	}
}
