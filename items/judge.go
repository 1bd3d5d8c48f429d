package items

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/hibiken/asynq"
)

// judge notes the result of an item that has ended.
func (c *conductor) judge(ctx context.Context, end ending, lost error) {
	if !end.ran {
		c.todo = append(c.todo, end.index)
		return
	}
	c.ran++
	c.measure(end.took)
	err := end.err
	if lost != nil && !end.keys.Lease().Committed() {
		err = errors.Join(err, lost)
	}
	if err == nil {
		c.store.setDone(end.index)
		return
	}
	if ctx.Err() != nil {
		return // it was interrupted: this does not count
	}
	before := c.store.noted[end.index]
	r := record{
		Attempt: c.run.Attempt(),
		Result:  Result{Index: end.index, State: Failed, Tries: before.Tries + 1, Err: short(err)},
	}
	if skip, ok := errors.AsType[*skipError](err); ok {
		r.State, r.Err = Skipped, short(skip.err)
		c.store.note(r)
		return
	}
	if later, ok := errors.AsType[*retryError](err); ok {
		r.Due = time.Now().Add(later.delay).UnixMilli()
	}
	r.Final = errors.Is(err, asynq.SkipRetry)
	c.store.note(r)
	c.broken = c.broken || c.inOrder || c.policy == Whole
}

// measure adds a duration to the average. If two tasks do so at the same moment, one duration may be lost, which does
// no harm.
func (c *conductor) measure(took time.Duration) {
	average := c.average.Load()
	if average == 0 {
		average = int64(took)
	}
	c.average.Store(max(average+(int64(took)-average)/8, 1))
}

// maxErr is the maximum size of an item's error text, in bytes.
const maxErr = 200

func short(err error) string {
	if err == nil {
		return ""
	}
	text := err.Error()
	return strings.ToValidUTF8(text[:min(len(text), maxErr)], "")
}
