package measure

import (
	"context"
	"runtime"
	"sync/atomic"
	"time"
)

// Hold is how long a caller keeps a key that others wait for.
const Hold = time.Millisecond

// Contend lets callers take a key in a loop, hold it and give it back, until the window ends: then the context of
// callers that still wait is cancelled. Each caller has one of the keys, which are numbered from 0, and every key as
// many callers as any other, or one more. do acquires, calls hold and releases; an error of do after a hold is one of
// the release.
func Contend(
	ctx context.Context, w Window, callers, keys int, do func(ctx context.Context, key int, hold func()) error,
) Sample {
	runtime.GC() // in this process, too
	// Not a deadline: some locks would take it for their own end.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer time.AfterFunc(time.Until(w.Until), cancel).Stop()
	held, overlaps := make([]atomic.Int32, keys), atomic.Int32{}
	sample, left := Callers(callers, w, func(i int, got func()) error {
		key := i % keys
		return do(ctx, key, func() {
			got()
			if held[key].Add(1) > 1 {
				overlaps.Add(1)
			}
			time.Sleep(Hold)
			held[key].Add(-1)
		})
	})
	left()
	sample.Overlaps = int(overlaps.Load())
	return sample
}
