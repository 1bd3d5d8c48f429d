package locking

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

func TestAHolderReadsWellInALog(t *testing.T) {
	t.Parallel()
	since := time.Date(2026, 1, 2, 4, 4, 5, 678_000_000, time.FixedZone("CET", 3600))
	for want, h := range map[string]Holder{
		"worker-2/71/order:audit since 2026-01-02T03:04:05.678Z, 28.8s left": {
			Label: "worker-2/71/order:audit", Since: since, Fence: 7, Remaining: 28*time.Second + 800*time.Millisecond,
		},
		"another program, 5s left":     {Remaining: 5 * time.Second},
		"another program, with no end": {Remaining: -time.Millisecond},
		"another program, 0s left":     {},
		"worker-2, 1.235s left":        {Label: "worker-2", Remaining: 1234567 * time.Microsecond},
	} {
		if got := h.String(); got != want {
			t.Errorf("%+v reads %q, want %q", h, got, want)
		}
	}
}

func TestErrorsMatchTheirSentinelsAndNoOthers(t *testing.T) {
	t.Parallel()
	cause := errors.New("no answer")
	held := fmt.Errorf("task: %w", &HeldError{Key: "order:1", Holder: Holder{Label: "worker-2"}})
	lost := fmt.Errorf("task: %w",
		errors.Join(cause, &LostError{Keys: []string{"order:1", "order:2"}, Reason: LossExpired, Err: cause}))
	for _, sentinel := range []error{ErrHeld, ErrLost, ErrReleased, ErrUnavailable} {
		if got, want := errors.Is(held, sentinel), errors.Is(sentinel, ErrHeld); got != want {
			t.Errorf("a HeldError matches %v: %v", sentinel, got)
		}
		if got, want := errors.Is(lost, sentinel), errors.Is(sentinel, ErrLost); got != want {
			t.Errorf("a LostError matches %v: %v", sentinel, got)
		}
	}
	if !errors.Is(&LostError{Err: cause}, cause) {
		t.Error("a LostError hides the error of the renewal")
	}
	for want, err := range map[string]error{
		`locking: key "order:1" is held by worker-2, 0s left`: &HeldError{
			Key:    "order:1",
			Holder: Holder{Label: "worker-2"},
		},
		`locking: lease of ["a" "b"] is lost: it could not be renewed within its validity: no answer`: &LostError{
			Keys: []string{"a", "b"}, Reason: LossExpired, Err: cause,
		},
		`locking: lease of ["a"] is lost: it was held for MaxHold`: &LostError{
			Keys:   []string{"a"},
			Reason: LossMaxHold,
		},
	} {
		if err.Error() != want {
			t.Errorf("error %q, want %q", err, want)
		}
	}
}
