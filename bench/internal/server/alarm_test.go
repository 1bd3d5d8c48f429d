package server_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/railtoken/railtoken/bench/internal/server"
)

func TestAnAlarmWaitsUntilTheTime(t *testing.T) {
	t.Parallel()
	until, end := server.NewAlarm()
	defer end()
	for range 10 {
		due := time.Now().Add(3 * time.Millisecond)
		if err := until(t.Context(), due); err != nil || time.Now().Before(due) {
			t.Fatalf("it has waited until %v before the time: %v", time.Until(due), err)
		}
	}
	if err := until(t.Context(), time.Now()); err != nil {
		t.Error(err)
	}
}

func TestTheEndOfAContextEndsAnAlarm(t *testing.T) {
	t.Parallel()
	until, end := server.NewAlarm()
	defer end()
	why := errors.New("why")
	ctx, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(10*time.Millisecond, func() { cancel(why) })
	if err := until(ctx, time.Now().Add(time.Hour)); !errors.Is(err, why) {
		t.Errorf("it has ended with %v", err)
	}
}
