package locking

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

type valueKey struct{}

func TestALazyDeadlineIsItsOwnCause(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		parent, cancel := context.WithCancelCause(context.WithValue(t.Context(), valueKey{}, "value"))
		cancel(errors.New("the caller stopped"))
		d := &lazyDeadline{Context: parent, deadline: time.Now().Add(releaseTimeout)}
		defer d.end()
		if d.Err() != nil || d.Value(valueKey{}) != "value" {
			t.Fatalf("error %v, value %v; want no error and the parent's value", d.Err(), d.Value(valueKey{}))
		}
		began := time.Now()
		child, stop := context.WithTimeout(d, 2*releaseTimeout)
		defer stop()
		<-child.Done() // virtual
		if took := time.Since(began); took != releaseTimeout {
			t.Errorf("it ended after %v, want %v", took, releaseTimeout)
		}
		for name, ctx := range map[string]context.Context{"the context": d, "its child": child} {
			if cause := context.Cause(ctx); !errors.Is(cause, context.DeadlineExceeded) {
				t.Errorf("the cause of %s is %v, want that the deadline has passed", name, cause)
			}
		}
	})
}
