package attach

import (
	"fmt"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/middleware"
)

// Keys returns an option for [Producer.EnqueueContext]: the business keys of the task, as the key function of its
// handler returns them. They are recorded with the task, in place of those that [ProducerOptions].Keys finds. The
// handler still runs under the keys that its own function returns. The option has no effect with asynq's own Client,
// nor as an option of asynq.NewTask.
func Keys(keys ...string) asynq.Option { return option{keys: append([]string{}, keys...)} }

// WhenHeld returns an option for [Producer.EnqueueContext] that decides at once what happens to a task if one of its
// keys is held:
//
//   - A strategy that fails, such as [middleware.FailFast], refuses the task. Nothing is enqueued, and the caller gets
//     a [middleware.ConflictError] with the key, its holder and RetryAfter.
//   - A strategy that parks, such as [middleware.Requeue], enqueues the task among the waiters of the key, without
//     running it first. Its Delay and Limits apply.
//   - [middleware.Supersede] enqueues the task before all others that wait, and has the holder stop. Give the handler of the task this
//     strategy, too.
//   - Any other strategy enqueues the task as usual.
//
// If the keys are free, the task is enqueued as usual. A nil strategy has no effect. The option needs the task's keys,
// from [Keys] or [ProducerOptions].Keys; without them the error is a [middleware.KeyError]. An invalid strategy, or one
// with an Order or a Queue, is an error, and a task that is due later or joins a group is refused with
// [delayqueue.ErrNotNow]. If the locks cannot be reached, the error matches [locking.ErrUnavailable]. In all these
// cases nothing is enqueued.
//
// The decision is valid for that moment only: an enqueued task may still meet another holder, and then its handler's
// strategy decides. Handlers that run tasks in order wake a task that was parked in this way once no task is left in the
// sequence. The option has no effect with asynq's own Client, nor as an option of asynq.NewTask.
func WhenHeld(s middleware.Strategy) asynq.Option { return option{strategy: s} }

// option is an option that asynq ignores.
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
