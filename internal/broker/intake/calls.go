package intake

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/asynqwire"
	"github.com/railtoken/railtoken/internal/pipeline"
	"github.com/railtoken/railtoken/internal/rediswire"
)

// run makes one call. No client sends it again by itself.
func (p *place) run(ctx context.Context, script *pipeline.Script, keys []string, args ...any) (reply any, err error) {
	return p.server.Run(ctx, pipeline.NewCall(nil, script, keys, args...))
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

// begin notes that a call is under way. After a Drain it reports false, unless always is set.
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
	_, ok := errors.AsType[redis.Error](err)
	return ok && !errors.Is(err, redis.Nil) && !rediswire.IsFinal(err)
}

// leaseEnd returns when the lease ends of a task that is taken now (s).
func leaseEnd(now time.Time) int64 { return now.Add(lease).Unix() }

// keysOf returns the keys of queues in the scripts.
func keysOf(queues []string) []string {
	keys := make([]string, 0, parts*len(queues)+1)
	for _, queue := range queues {
		keys = append(keys, asynqwire.Pending(queue), asynqwire.Paused(queue), asynqwire.Active(queue), asynqwire.Lease(queue))
	}
	return keys
}

var errReply = errors.New("broker: unexpected script reply")

// reader reads the reply to a fetch.
type reader struct {
	call  string   // the name of the fetch
	names []string // of the queues
	asking
}

// got is what a fetch has brought.
type got struct {
	tasks  []Task
	parked []Parked
	more   bool // there may be tasks behind these
}

// read reads a reply.
func (r *reader) read(reply any) (g got, err error) {
	values, ok := reply.([]any)
	if last := len(values) - 1; ok && len(values)%fields == 1 {
		if g.parked, g.more, err = r.parked(values[last]); err != nil {
			return g, err
		}
		values = values[:last]
	}
	if !ok || len(values)%fields != 0 {
		return g, fmt.Errorf("%w: %v", errReply, reply)
	}
	g.tasks = make([]Task, 0, len(values)/fields)
	for ; len(values) > 0; values = values[fields:] {
		queue, err := r.queue(values[0])
		if err != nil {
			return g, err
		}
		number, isNumber := values[2].(int64)
		if !isNumber {
			return g, fmt.Errorf("%w: number %v", errReply, values[2])
		}
		if values[3] == nil { // its hash is gone: asynq's own script leaves it, too
			continue
		}
		t := Task{Queue: queue, Run: r.call + "." + strconv.FormatInt(number, 10)}
		t.ID, _ = values[1].(string)
		t.Message, _ = values[3].(string)
		t.Recorded, _ = values[5].(string)
		if waited, _ := values[4].([]any); len(waited) == 3 {
			t.Wait, _ = waited[0].(string)
			t.Sequence, _ = waited[2].(string)
			t.Woken, t.WokenFor = wokenFor(waited[1])
		}
		t.Taken, t.Refused = r.locked(&t, int(number), values[6])
		g.tasks = append(g.tasks, t)
	}
	return g, nil
}

// queue reads the position of a queue.
func (r *reader) queue(value any) (string, error) {
	at, _ := value.(int64)
	if at < 1 || int(at) > len(r.names) {
		return "", fmt.Errorf("%w: queue %v", errReply, value)
	}
	return r.names[at-1], nil
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
