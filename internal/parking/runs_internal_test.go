package parking

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/railtoken/railtoken/internal/asynqconn"
)

// asynq acknowledges no run whose lease has ended.
func TestRunsWithoutAnAcknowledgementAreForgotten(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		claimed bool
		pause   time.Duration
	}{
		"they tell of their end": {true, 2 * time.Minute},
		"they tell of nothing":   {false, 2 * time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				q := &Engine{}
				fetch := func(id string) *Run {
					(*tasks)(q).Fetched(asynqconn.Fetched{Queue: "default", ID: id})
					if !tt.claimed {
						return nil
					}
					r, err := q.Run(Task{Queue: "default", ID: id})
					if err != nil {
						t.Fatal(err)
					}
					return r
				}
				runs := fetch("runs all the time")
				for round := range 30 {
					for i := range 500 {
						fetch(fmt.Sprint(round, ":", i)).End(t.Context())
					}
					time.Sleep(tt.pause)
					if n := q.Runs(); n > 2*sweepFrom {
						t.Fatalf("%d runs are remembered after %d rounds", n, round+1)
					}
				}
				if runs == nil {
					return
				}
				if r, err := q.Run(runs.task); r != runs || err != nil {
					t.Errorf("a run that has not ended is forgotten: %v", err)
				}
			})
		})
	}
}

func TestAnUnknownAsynqHasNoRuns(t *testing.T) {
	t.Parallel()
	q := &Engine{}
	task := Task{Queue: "default", ID: "a"}
	if r, err := q.Run(task); r != nil || !errors.Is(err, ErrNotOurs) {
		t.Errorf("%v, %v", r, err)
	}
	q.runs.foreign.Store(true)
	r, err := q.Run(task)
	if r != nil || err != nil || r.Met(0) != (Conflict{}) {
		t.Errorf("%v, %v", r, err)
	}
	r.End(context.Background())
}
