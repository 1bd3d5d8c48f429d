package worker

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/railtoken/railtoken/attach"
	"github.com/railtoken/railtoken/internal/holdings"
	"github.com/railtoken/railtoken/internal/testing/redistest"
)

func TestAWorkerWithItsLocksElsewhereDoesNotStart(t *testing.T) {
	t.Parallel()
	tasks := redistest.Start(t)
	first, err := New(Config{Redis: Redis{Addr: tasks.Addr()}})
	if err != nil {
		t.Fatal(err)
	}
	handle(t, first, "audit", nothing)
	if err := first.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	reports := tasks.Client(t)
	for end := time.Now().Add(30 * time.Second); reports.Exists(t.Context(), holdings.Workers).Val() == 0; <-time.After(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the first worker reports nothing")
		}
	}
	cfg := Config{Redis: Redis{Addr: tasks.Addr()}, LockRedis: Redis{Addr: redistest.Start(t).Addr()}}
	err = starts(t, cfg)
	if _, refused := errors.AsType[*attach.SeparateLocksError](err); !refused || !strings.Contains(err.Error(), "RAILTOKEN_ALLOW_SEPARATE_LOCKS") {
		t.Errorf("Start returns %v", err)
	}
	cfg.AllowSeparateLocks = true
	if err := starts(t, cfg); err != nil {
		t.Errorf("although it is allowed, Start returns %v", err)
	}
	if err := first.Shutdown(); err != nil {
		t.Error(err)
	}
	cfg.AllowSeparateLocks = false
	if err := starts(t, cfg); err != nil {
		t.Errorf("beside nobody, Start returns %v", err)
	}
}
