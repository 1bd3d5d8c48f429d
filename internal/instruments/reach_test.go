package instruments

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/railtoken/railtoken/middleware"
)

func TestTheLongestOutageOfAllWorkersIsRead(t *testing.T) {
	t.Parallel()
	g := NewGauge(nil)
	over := false
	for _, w := range []struct{ tasks, locks time.Duration }{{time.Second, 3 * time.Second}, {2 * time.Second, 0}} {
		g.Observe(&middleware.Event{Kind: "started", Reach: func(context.Context) (time.Duration, time.Duration, bool) {
			return w.tasks, w.locks, !over
		}})
	}
	read := func() (all string) {
		for _, m := range g.Read(t.Context()) {
			all += fmt.Sprintf("%s%v=%v ", m.Name, m.Labels, m.Value)
		}
		return all
	}
	if got := read(); got != "unreachable[tasks]=2 unreachable[locks]=3 " {
		t.Error(got)
	}
	over = true
	if got := read(); got != "" || len(g.reaches.all) > 0 {
		t.Errorf("workers that are shut down still have %q", got)
	}
}
