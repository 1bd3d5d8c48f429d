package intake

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/pipeline"
)

// run makes one call. No client sends it again by itself.
func (in *Intake) run(ctx context.Context, script *pipeline.Script, keys []string, args []any, names []string, from int,
) (tasks []Task, live bool, err error) {
	reply, err := in.server.Run(ctx, pipeline.NewCall(nil, script, keys, args...))
	if err != nil {
		return nil, false, err
	}
	return tasksOf(reply, names, from)
}

// repeat makes a call in the background until it returns no error, and reports false when the process is ending.
func (in *Intake) repeat(call func(context.Context) error) bool {
	in.begin(true)
	ok := in.spawn(repeatLimit, func(ctx context.Context) {
		defer in.end()
		wait := backoff.NewExponentialBackOff(backoff.WithInitialInterval(repeatFirst),
			backoff.WithMaxInterval(repeatMost), backoff.WithMaxElapsedTime(repeatLimit))
		_ = backoff.Retry(func() error { return call(ctx) }, backoff.WithContext(wait, ctx))
	})
	if !ok {
		in.end()
	}
	return ok
}

// begin notes that a call is under way. After a Drain it reports false, unless the call must be made all the same.
func (in *Intake) begin(always bool) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.drained.Load() && !always {
		return false
	}
	in.calls++
	return true
}

// end notes that a call is over.
func (in *Intake) end() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.calls--
	if in.calls == 0 && in.idle != nil {
		close(in.idle)
		in.idle = nil
	}
}

// unanswered reports whether the outcome of a call is not known. What Redis answers is an outcome, and so is that the
// client is closed.
func unanswered(err error) bool {
	if err == nil || errors.Is(err, redis.Nil) || errors.Is(err, redis.ErrClosed) || errors.Is(err, errReply) {
		return false
	}
	var reply redis.Error
	return !errors.As(err, &reply)
}

// passes reports whether a call may succeed later: it was not answered, or Redis has refused it for the moment, as it does
// during a failover.
func passes(err error) bool {
	if unanswered(err) {
		return true
	}
	reply, ok := errors.AsType[redis.Error](err)
	if !ok || errors.Is(err, redis.Nil) {
		return false
	}
	kind, _, _ := strings.Cut(reply.Error(), " ")
	return !slices.Contains([]string{"ERR", "NOPERM", "WRONGTYPE", "NOT", "CROSSSLOT", "EXECABORT"}, kind)
}

// leaseEnd returns when the lease ends of a task that is taken now (s).
func leaseEnd() int64 { return time.Now().Add(lease).Unix() }

// keysOf returns the keys of queues in the scripts.
func keysOf(queues []string) []string {
	keys := make([]string, 0, parts*len(queues)+1)
	for _, queue := range queues {
		prefix := "asynq:{" + queue + "}:"
		keys = append(keys, prefix+"pending", prefix+"paused", prefix+"active", prefix+"lease")
	}
	return keys
}

var errReply = errors.New("asynqconn: unexpected script reply")

// tasksOf reads the reply of a script: the tasks from a position on, and whether the first value is not 0.
func tasksOf(values any, names []string, from int) (tasks []Task, live bool, err error) {
	reply, _ := values.([]any)
	if (len(reply)-from)%fields != 0 || len(reply) < from {
		return nil, false, fmt.Errorf("%w: %d values", errReply, len(reply))
	}
	live = from == 0 || reply[0] != int64(0)
	for rest := reply[from:]; len(rest) > 0; rest = rest[fields:] {
		queue, _ := rest[0].(int64)
		if queue < 1 || int(queue) > len(names) {
			return nil, false, fmt.Errorf("%w: queue %v", errReply, rest[0])
		}
		if rest[3] == nil { // its hash is gone: asynq's own script leaves it, too
			continue
		}
		t := Task{Queue: names[queue-1], Woken: rest[7] != nil}
		for i, to := range []*string{&t.ID, &t.Run, &t.Message, &t.Retried, &t.Conflicts, &t.First} {
			*to, _ = rest[1+i].(string)
		}
		tasks = append(tasks, t)
	}
	return tasks, live, nil
}
