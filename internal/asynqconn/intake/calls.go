package intake

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/pipeline"
)

// run makes one call. No client sends it again by itself.
func (in *Intake) run(ctx context.Context, script *pipeline.Script, keys []string, args []any, r reader,
) (answer, error) {
	return in.send(ctx, pipeline.NewCall(nil, script, keys, args...), r)
}

// send does what run does with a call.
func (in *Intake) send(ctx context.Context, call *pipeline.Call, r reader) (answer, error) {
	reply, err := in.server.Run(ctx, call)
	if err != nil {
		return answer{}, err
	}
	return r.read(reply)
}

// repeat makes a call in the background until it returns no error, and reports false when the process is ending. If it
// gives up, it calls gaveUp.
func (in *Intake) repeat(call func(context.Context) error, gaveUp func()) bool {
	in.begin(true)
	ok := in.spawn(repeatLimit, func(ctx context.Context) {
		defer in.end()
		wait := backoff.NewExponentialBackOff(backoff.WithInitialInterval(repeatFirst),
			backoff.WithMaxInterval(repeatMost), backoff.WithMaxElapsedTime(repeatLimit))
		if backoff.Retry(func() error { return call(ctx) }, backoff.WithContext(wait, ctx)) != nil {
			gaveUp()
		}
	})
	if !ok {
		in.end()
		gaveUp()
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

// reader reads the replies of a call.
type reader struct {
	names []string // of the queues
	head  int      // how many numbers come before the tasks
	asking
}

// answer is the reply of a call.
type answer struct {
	head  [ackHead]int64
	tasks []Task
}

// wokenFor reads how long ago a task was woken, if it was.
func wokenFor(value any) (woken bool, ago time.Duration) {
	text, woken := value.(string)
	us, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		us = 0
	}
	return woken, time.Duration(us) * time.Microsecond
}

// read reads a reply.
func (r reader) read(values any) (a answer, err error) {
	reply, _ := values.([]any)
	if len(reply) < r.head || (len(reply)-r.head)%fields != 0 {
		return a, fmt.Errorf("%w: %d values", errReply, len(reply))
	}
	for i := range r.head {
		n, ok := reply[i].(int64)
		if !ok {
			return a, fmt.Errorf("%w: %v", errReply, reply[i])
		}
		a.head[i] = n
	}
	for rest := reply[r.head:]; len(rest) > 0; rest = rest[fields:] {
		queue, _ := rest[0].(int64)
		if queue < 1 || int(queue) > len(r.names) {
			return a, fmt.Errorf("%w: queue %v", errReply, rest[0])
		}
		if rest[3] == nil { // its hash is gone: asynq's own script leaves it, too
			continue
		}
		t := Task{Queue: r.names[queue-1]}
		t.Woken, t.WokenFor = wokenFor(rest[7])
		for i, to := range []*string{&t.ID, &t.Run, &t.Message, &t.Retried, &t.Conflicts, &t.First} {
			*to, _ = rest[1+i].(string)
		}
		t.Recorded, _ = rest[8].(string)
		t.Taken, t.Refused = r.locked(&t, rest[9])
		a.tasks = append(a.tasks, t)
	}
	return a, nil
}
