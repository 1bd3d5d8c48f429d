package taskrun

import (
	"context"
	"reflect"
	"sync"

	"github.com/hibiken/asynq"
)

// KeyFunc is a middleware.KeyFunc.
type KeyFunc = func(ctx context.Context, task *asynq.Task) ([]string, error)

// early has the code of the closures that [KnownEarly] was called with. All closures of one function literal have the same
// code, so it has one entry for each literal of this module.
var early sync.Map

// KnownEarly notes that a KeyFunc, and every other closure of its function literal, depends on the payload and the headers of
// a task alone. So it may be called before the run, without the context of the run. It returns its argument.
func KnownEarly(find KeyFunc) KeyFunc {
	early.Store(reflect.ValueOf(find).Pointer(), nil)
	return find
}

// IsKnownEarly reports whether a KeyFunc may be called before the run of a task. One that a user has written may not: it may
// use the context, or take long.
func IsKnownEarly(find KeyFunc) bool {
	_, known := early.Load(reflect.ValueOf(find).Pointer())
	return known
}
