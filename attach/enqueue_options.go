package attach

import (
	"fmt"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/middleware"
)

// Keys returns an option for [Producer.EnqueueContext]: the business keys of the task, as the key function of its
// handler finds them. They are recorded with the task, in place of those that [ProducerOptions].Keys finds. The handler
// still runs under the keys that its own function finds. It has no effect with asynq's own Client, nor as an option of
// asynq.NewTask.
func Keys(keys ...string) asynq.Option { return option{keys: append([]string{}, keys...)} }

// WhenHeld returns an option for [Producer.EnqueueContext] that decides at once about a task one of whose keys is held.
// A strategy that fails, such as [middleware.FailFast], enqueues nothing: the caller gets a [middleware.ConflictError]
// with the key, its holder and RetryAfter. One that parks, such as [middleware.Requeue], enqueues the task among the
// waiters of the key, without a run; its Delay and Limits count. Any other strategy enqueues the task as usual, and so
// does every strategy when the key is free. A task that is due later or joins a group is refused with
// delayqueue.ErrNotNow.
//
// The decision holds for that moment only: a task that was enqueued may still meet another holder, and then its
// handler's strategy decides. Handlers that run in order do not wake a task that was parked this way: it waits for its
// own timer. The option has no effect with asynq's own Client, nor as an option of asynq.NewTask.
func WhenHeld(s middleware.Strategy) asynq.Option { return option{strategy: s} }

// option is an option that asynq passes over.
type option struct {
	keys     []string
	strategy middleware.Strategy
}

func (o option) String() string {
	if o.strategy != nil {
		return fmt.Sprintf("WhenHeld(%T)", o.strategy)
	}
	return fmt.Sprintf("Keys(%d)", len(o.keys)) // they are business data
}

func (option) Type() asynq.OptionType { return -1 }
func (o option) Value() any           { return o }
