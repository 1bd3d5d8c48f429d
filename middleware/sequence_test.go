package middleware_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/internal/line"
	"github.com/railtoken/railtoken/middleware"
)

// prompt is how soon parked tasks must run once their key is free. Their own timers are an hour, so only wakes can
// bring them.
const prompt = 15 * time.Second

// scene is a key with a task that holds it and tasks that are parked behind it, in the order of their numbers.
type scene struct {
	*rig
	key     string
	holder  delayqueue.Task
	waiters []delayqueue.Task
	server  *asynq.Server
	retryIn atomic.Int64  // when asynq retries a task that has failed; at once when zero
	goOn    chan struct{} // the first run of the holder's handler returns when it is closed

	mu      sync.Mutex
	began   chan struct{} // closed when the holder's handler runs
	heeds   bool          // it returns when its context ends, and not only with goOn
	inside  int
	overlap int
	ran     []delayqueue.Task
	attempt func(ctx context.Context, id string) // called before each run asks for the key

	cancelled <-chan struct{} // not nil: closed when the run that the test is about has been cancelled
}

// newScene parks five tasks behind a holder. They are spread over the queues; the holder is in one of its own.
// name must be different in each test on one Redis.
func newScene(t *testing.T, client redis.UniversalClient, name string, queues ...string) *scene {
	t.Helper()
	const waiters = 5
	name = strings.ReplaceAll(name, "/", ".")
	l := &scene{
		rig: newRig(t, client), key: "order:" + name, goOn: make(chan struct{}), began: make(chan struct{}), heeds: true,
		holder: delayqueue.Task{Queue: name + ":holder", ID: name + "-holder"},
	}
	if len(queues) == 0 {
		queues = []string{"all"}
	}
	weights := map[string]int{l.holder.Queue: 1}
	for i := range waiters {
		queue := name + ":" + queues[i%len(queues)]
		weights[queue] = 1
		l.waiters = append(l.waiters, delayqueue.Task{Queue: queue, ID: name + "-" + string(rune('a'+i))})
	}
	strategy := parkAlways()
	strategy.Delay = time.Hour
	opts := l.options(strategy)
	opts.Key = func(ctx context.Context, _ *asynq.Task) ([]string, error) {
		l.mu.Lock()
		before := l.attempt
		l.mu.Unlock()
		if id, ok := asynq.GetTaskID(ctx); ok && before != nil {
			before(ctx, id)
		}
		return []string{l.key}, nil
	}
	l.server = l.serve(opts, asynq.Config{
		Concurrency: 4, Queues: weights, DelayedTaskCheckInterval: 100 * time.Millisecond,
		RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return time.Duration(l.retryIn.Load()) }, // of tasks that fail
	}, l.handle)
	l.add(l.holder)
	receive(t, l.began)
	for _, w := range l.waiters {
		l.add(w)
		l.settled(w, asynq.TaskStateRetry)
	}
	return l
}

// add enqueues a task for the key.
func (l *scene) add(t delayqueue.Task) {
	l.Helper()
	data, err := json.Marshal(payload{Key: l.key})
	if err != nil {
		l.Fatal(err)
	}
	_, err = l.tasks.Enqueue(asynq.NewTask("test", data), asynq.Queue(t.Queue), asynq.TaskID(t.ID), asynq.MaxRetry(3))
	if err != nil {
		l.Fatal(err)
	}
}

// handle is the handler of all tasks.
func (l *scene) handle(ctx context.Context, _ *asynq.Task) error {
	id, err := line.TaskOf(ctx)
	task := delayqueue.Task(id)
	if err != nil {
		return err
	}
	l.mu.Lock()
	l.inside++
	if l.inside > 1 {
		l.overlap++
	}
	first := task == l.holder && len(l.ran) == 0
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.inside--
	}()
	if !first {
		l.note(task)
		<-time.After(time.Millisecond) // others would meet it
		return nil
	}
	close(l.began)
	defer l.note(task)
	select {
	case <-l.goOn:
		return nil
	case <-ctx.Done():
	}
	l.mu.Lock()
	heeds := l.heeds
	l.mu.Unlock()
	if !heeds {
		<-l.goOn
	}
	return context.Cause(ctx)
}

// note records a run.
func (l *scene) note(t delayqueue.Task) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ran = append(l.ran, t)
}

// runs returns the tasks whose handlers ran, in their order.
func (l *scene) runs() []delayqueue.Task {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.ran)
}

// before has f called before each run asks for the key.
func (l *scene) before(f func(ctx context.Context, id string)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.attempt = f
}

// parked waits until a task has ended n runs in conflict and lies in asynq's retry set.
func (l *scene) parked(t delayqueue.Task, n int) {
	l.Helper()
	l.events.await(l, n, func(e middleware.Event) bool { return e.Task == t && parked(e) })
	l.settled(t, asynq.TaskStateRetry)
}

// must ends the test for an error of asynq's tools.
func (l *scene) must(_ any, err error) {
	l.Helper()
	if err != nil {
		l.Fatal(err)
	}
}

// reach waits for a condition.
func (l *scene) reach(what string, reached func() bool) {
	l.Helper()
	for began := time.Now(); !reached(); <-pause(began) {
		if time.Since(began) > prompt {
			l.Fatalf("%s: not within %v; ran %v; parked %v", what, prompt, l.runs(), l.parkedNow())
		}
	}
}

// parkedNow returns the tasks that wait for the key.
func (l *scene) parkedNow() []delayqueue.Task {
	l.Helper()
	waiters, err := l.queue.Inspector().Waiters(context.Background(), l.key, 100)
	if err != nil {
		l.Fatal(err)
	}
	var tasks []delayqueue.Task
	for _, w := range waiters {
		tasks = append(tasks, w.Task)
	}
	return tasks
}

// end gives the key back and checks that exactly these waiters run promptly, each once, and that no two tasks meet.
func (l *scene) end(want []delayqueue.Task) {
	l.Helper()
	close(l.goOn)
	l.finish(want)
}

// finish is end for a key that has been given back.
func (l *scene) finish(want []delayqueue.Task) {
	l.Helper()
	l.reach("every remaining task runs", func() bool {
		ran := l.runs()
		return !slices.ContainsFunc(want, func(t delayqueue.Task) bool { return !slices.Contains(ran, t) })
	})
	l.reach("the registry is gone", func() bool {
		return l.client.Exists(context.Background(), "railtoken:waiters:{"+l.key+"}").Val() == 0
	})
	l.gone(l.holder)
	if l.cancelled != nil {
		receive(l.T, l.cancelled)
	}
	l.server.Shutdown()
	var ran []delayqueue.Task
	for _, t := range l.runs() {
		if t != l.holder {
			ran = append(ran, t)
		}
	}
	order := func(a, b delayqueue.Task) int { return strings.Compare(a.ID, b.ID) }
	slices.SortFunc(ran, order)
	want = slices.SortedFunc(slices.Values(want), order)
	if !slices.Equal(ran, want) {
		l.Errorf("ran %v, want %v", ran, want)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.overlap > 0 {
		l.Errorf("%d tasks met another one of their key", l.overlap)
	}
}

// without returns the tasks but one.
func without(tasks []delayqueue.Task, one delayqueue.Task) []delayqueue.Task {
	return slices.DeleteFunc(slices.Clone(tasks), func(t delayqueue.Task) bool { return t == one })
}

// of returns the tasks of a queue.
func of(tasks []delayqueue.Task, queue string) []delayqueue.Task {
	return slices.DeleteFunc(slices.Clone(tasks), func(t delayqueue.Task) bool { return t.Queue != queue })
}
