package traces

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/attach"
	"github.com/railtoken/railtoken/internal/asynqwire"
	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/middleware"
)

// slots is how many tasks a worker runs at once, as SLOTS of the model.
const slots = 2

// run is the nth run of the handler of a task.
type run struct {
	id  string
	nth int
}

// began is a run, and its worker.
type began struct {
	run

	worker *worker
}

// play is the recording of one run.
type play struct {
	*testing.T
	names
	setting
	random   *rand.Rand
	redis    *redistest.Server
	client   *redis.Client // of the recorder
	recorder *recorder
	producer *attach.Producer
	inspect  *asynq.Inspector
	strategy middleware.Strategy
	workers  []*worker
	warmed   chan struct{}
	started  chan began            // whose handlers have begun
	holds    map[run]chan struct{} // until these are closed, these runs work

	mu    sync.Mutex
	count map[string]int // runs of each task
}

func newPlay(t *testing.T, s setting, seed uint64) *play {
	t.Helper()
	server := redistest.Start(t)
	p := &play{
		T: t, names: names{queue, []string{"t0", "t1", "t2", "t3"}[:len(s.jobs)], s.keys}, setting: s, random: rand.New(rand.NewPCG(seed, 0)), redis: server,
		client: server.Client(t), recorder: record(t, server), strategy: middleware.Requeue{Order: s.order}, warmed: make(chan struct{}),
		started: make(chan began, 1000), holds: map[run]chan struct{}{}, count: map[string]int{},
	}
	p.inspect = asynq.NewInspectorFromRedisClient(p.client)
	var err error
	p.producer, err = attach.NewProducer(p.client, attach.ProducerOptions{Keys: map[string]middleware.KeyFunc{taskType: keysOf}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.producer.Close() })
	return p
}

// warmUp starts two workers, and has each run a task, so that it knows that its handler locks the keys that are recorded.
func (p *play) warmUp() {
	p.Helper()
	for i := range 2 {
		p.work(i)
		for n := range slots + 1 - i {
			p.enqueue(job{ID: fmt.Sprintf("warm%d%d", i, n), Keys: []string{fmt.Sprintf("warm%d%d", i, n)}, Warm: true})
		}
		redistest.Receive(p.T, p.workers[i].warm, limit) // the first worker has no free slot from then on
	}
	close(p.warmed)
	if !p.ended(limit) {
		p.Fatal("the tasks before the recording do not end")
	}
}

// begin enqueues the tasks of the run, and lets the workers have them. They are pending in any order, as after wakes and retries.
func (p *play) begin(jobs ...job) {
	p.Helper()
	p.pause()
	p.enqueue(jobs...)
	p.random.Shuffle(len(jobs), func(i, k int) { jobs[i], jobs[k] = jobs[k], jobs[i] })
	for _, j := range jobs {
		p.client.LRem(p.Context(), asynqwire.Pending(queue), 0, j.ID)
		p.client.LPush(p.Context(), asynqwire.Pending(queue), j.ID)
	}
	p.mark(markBegin)
	p.client.Del(p.Context(), asynqwire.Paused(queue))
}

// pause has the workers fetch in vain.
func (p *play) pause() {
	p.Helper()
	if err := p.inspect.PauseQueue(queue); err != nil {
		p.Fatal(err)
	}
}

func (p *play) mark(what string) {
	p.Helper()
	if err := p.recorder.mark(what); err != nil {
		p.Fatal(err)
	}
}

// next counts the runs of a task.
func (p *play) next(id string) run {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.count[id]++
	return run{id, p.count[id]}
}

// enqueue adds tasks. Their keys are recorded, unless the workers are to find them.
func (p *play) enqueue(jobs ...job) {
	p.Helper()
	for _, j := range jobs {
		payload, err := json.Marshal(j)
		if err != nil {
			p.Fatal(err)
		}
		task, opts := asynq.NewTask(taskType, payload), []asynq.Option{asynq.Queue(queue), asynq.TaskID(j.ID), asynq.MaxRetry(j.Retries)}
		switch {
		case p.order != middleware.BestEffort:
			_, err = p.producer.EnqueueInOrder(p.Context(), j.Keys[0], task, opts...)
		case p.found && !j.Warm:
			_, err = asynq.NewClientFromRedisClient(p.client).EnqueueContext(p.Context(), task, opts...)
		default:
			_, err = p.producer.EnqueueContext(p.Context(), task, opts...)
		}
		if err != nil {
			p.Fatal(err)
		}
	}
}

// left returns how many tasks have not ended.
func (p *play) left() (n int, err error) {
	info, err := p.inspect.GetQueueInfo(queue)
	if err != nil {
		return 0, err
	}
	return info.Pending + info.Active + info.Retry + info.Scheduled, nil
}

// ended waits until all tasks are done or archived.
func (p *play) ended(within time.Duration) bool {
	return p.until(within, func() bool { n, err := p.left(); return n == 0 && err == nil })
}

// until waits for something that no event tells of.
func (p *play) until(within time.Duration, so func() bool) bool {
	for began := time.Now(); time.Since(began) < within; <-time.After(2 * time.Millisecond) {
		if so() {
			return true
		}
	}
	return false
}

// waiting waits until a task is parked.
func (p *play) waiting(within time.Duration) bool {
	return p.until(within, func() bool { return p.client.ZCard(p.Context(), asynqwire.Retry(queue)).Val() > 0 })
}

// hasten has the timers of all parked tasks fire.
func (p *play) hasten() {
	for _, id := range p.client.ZRange(p.Context(), asynqwire.Retry(queue), 0, -1).Val() {
		p.client.ZAddXX(p.Context(), asynqwire.Retry(queue), redis.Z{Score: 1, Member: id})
	}
}

// lapse ends the locks of a worker that was killed, and asynq's leases on its tasks.
func (p *play) lapse(w *worker) {
	p.Helper()
	for _, id := range p.client.LRange(p.Context(), asynqwire.Active(queue), 0, -1).Val() {
		if !w.tap.began(p.client.HGet(p.Context(), asynqwire.Hash(queue, id), asynqwire.PendingSinceField).Val()) {
			continue
		}
		p.client.ZAddXX(p.Context(), asynqwire.Lease(queue), redis.Z{Score: 1, Member: id})
		for _, key := range p.names.keys {
			if owner := p.client.Get(p.Context(), lockOf(key)).Val(); strings.HasSuffix(owner, "/"+id) {
				p.client.Del(p.Context(), lockOf(key))
			}
		}
	}
}

// deliver sends what is late. The queue is not paused any more then.
func (p *play) deliver(w *worker) {
	p.Helper()
	client := p.redis.Client(p.T, func(o *redis.Options) { o.Dialer = p.recorder.dial(w.number) })
	_, _ = client.TxPipelined(p.Context(), func(pipe redis.Pipeliner) error {
		pipe.Del(p.Context(), asynqwire.Paused(queue))
		for _, cmd := range w.tap.held() {
			pipe.Do(p.Context(), cmd.Args()...)
		}
		return nil
	})
}

// errStuck reports that tasks do not end.
var errStuck = errors.New("the tasks do not end")

// text returns the events as trace.pml reads them, behind the faults and how many of them there may have been.
func text(events []event, mask, most int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d %d\n", mask, most)
	for i := range events {
		fmt.Fprintln(&b, events[i].line())
	}
	return b.String()
}

// spent returns how many of the events that the model bounds a run shows.
func spent(events []event) (n int) {
	for i := range events {
		if slices.Contains([]kind{ends, goesBack, forwards, expires, crashes, exits}, events[i].kind) {
			n++
		}
	}
	return n
}
