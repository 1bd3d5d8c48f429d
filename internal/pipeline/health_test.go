package pipeline

import (
	"errors"
	"strings"
	"testing"
	"time"
)

func TestHealthDecidesWhetherAServerIsAsked(t *testing.T) {
	t.Parallel()
	const patience = 50 * time.Millisecond
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	errDown := errors.New("down")
	failed := func(h *health, times ...int) {
		for _, ms := range times {
			h.sent(at(ms))
			h.answered(at(ms), errDown)
		}
	}
	looks := func(h *health, times ...int) {
		for _, ms := range times {
			_, _ = h.look(at(ms), patience)
		}
	}
	for name, tt := range map[string]struct {
		events func(h *health)
		now    int
		want   string // part of the refusal; empty when it is asked
	}{
		"nothing is known":         {func(*health) {}, 0, ""},
		"it was sent a moment ago": {func(h *health) { h.sent(at(0)); looks(h, 10, 20, 30, 40) }, 49, ""},
		"no answer for longer than patience": {
			func(h *health) { h.sent(at(0)); looks(h, 10, 20, 30, 40, 50) }, 51,
			"no answer for 51ms",
		},
		"it has answered": {func(h *health) { h.sent(at(0)); looks(h, 10, 20, 30, 40, 50); h.answered(at(60), nil) }, 61, ""},
		"and no answer again": {func(h *health) {
			h.sent(at(0))
			h.answered(at(10), nil)
			h.sent(at(100))
			looks(h, 110, 120, 130, 140, 150)
		}, 151, "no answer"},
		"this process was busy": {func(h *health) { h.sent(at(0)); looks(h, 100, 200, 300, 400) }, 400, ""},
		"and found out": {
			func(h *health) { h.sent(at(0)); looks(h, 100, 200, 300, 400, 410) }, 410,
			"no answer for 410ms",
		},
		"it may not be busy for ever": {func(h *health) { h.sent(at(0)); looks(h, 500) }, 500, "no answer for 500ms"},
		"answers usually take as long": {func(h *health) {
			h.sent(at(0))
			h.answered(at(40), nil)
			h.sent(at(100))
			looks(h, 110, 120, 130, 140, 150, 160, 170)
		}, 170, ""},
		"but not longer than twice": {func(h *health) {
			h.sent(at(0))
			h.answered(at(40), nil)
			h.sent(at(100))
			looks(h, 110, 120, 130, 140, 150, 160, 170, 180)
		}, 180, "no answer for 80ms"},
		"it has failed": {
			func(h *health) { failed(h, 0) }, 24,
			"within 1ms of the last failure: down",
		},
		"the first pause is over": {func(h *health) { failed(h, 0) }, 25, ""},
		"a call tries again": {
			func(h *health) { failed(h, 0); h.sent(at(25)) }, 26,
			"it is being tried again; the last failure: down",
		},
		"it has failed twice":      {func(h *health) { failed(h, 0, 25) }, 74, "of the last failure"},
		"the second pause is over": {func(h *health) { failed(h, 0, 25) }, 75, ""},
		"the pause grows": {
			func(h *health) { failed(h, 0, 1, 2, 3) }, 202,
			"of the last failure",
		},
		"and ends": {func(h *health) { failed(h, 0, 1, 2, 3) }, 203, ""},
		"up to a second": {
			func(h *health) { failed(h, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0) }, 999,
			"of the last failure",
		},
		"and no longer": {func(h *health) { failed(h, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0) }, 1000, ""},
		"an answer ends the pause": {
			func(h *health) { failed(h, 0, 1, 2); h.answered(at(3), nil) }, 4,
			"",
		},
		"and makes the next one short": {
			func(h *health) { failed(h, 0, 1, 2); h.answered(at(3), nil); failed(h, 10) }, 35,
			"",
		},
		"the try after a pause fails": {
			func(h *health) { failed(h, 0); h.sent(at(25)); h.answered(at(40), errDown) }, 89,
			"within 1ms",
		},
		"no answer to the try after the pause": {
			func(h *health) { failed(h, 0); h.sent(at(25)); looks(h, 35, 45, 55, 65, 75) }, 80,
			"no answer for 55ms",
		},
		"the pause counts from the last answer": {
			func(h *health) { h.sent(at(0)); h.answered(at(40), errDown) }, 64,
			"within 1ms",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var h health
			tt.events(&h)
			err := h.refuse(at(tt.now))
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("refused by %v, want %q", err, tt.want)
			}
			if err != nil && h.failures > 0 && h.since.IsZero() && !errors.Is(err, errDown) {
				t.Errorf("the refusal %v does not tell of the last failure", err)
			}
		})
	}
}
