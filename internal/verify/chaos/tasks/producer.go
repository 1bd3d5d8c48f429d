package tasks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/attach"
	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/middleware"
)

// Sent is how a task was enqueued.
type Sent struct {
	// It was written between From, the first call, and To, the answer to the last one.
	Window
	// Outside says that it had no position in the order of its key until it ran.
	Outside bool
	// Tries is how often it was sent.
	Tries int
}

// Producer enqueues tasks, those of a key one after another, and keeps what it has sent.
type Producer struct {
	client   *redis.Client
	plain    *asynq.Client
	inspect  *asynq.Inspector
	attached *attach.Producer
	all      []Task
	locks    Locks

	mu   sync.Mutex
	sent map[int]Sent
	gone []Gone
}

// NewProducer returns a producer of tasks.
func NewProducer(r Redis, locks Locks, all []Task, log io.Writer) (*Producer, error) {
	client := r.Client()
	attached, err := attach.NewProducer(client, attach.ProducerOptions{Logger: slog.New(slog.NewTextHandler(log, nil))})
	if err != nil {
		return nil, err
	}
	return &Producer{
		client: client, plain: asynq.NewClientFromRedisClient(client), inspect: asynq.NewInspectorFromRedisClient(client), attached: attached,
		all: all, locks: locks, sent: map[int]Sent{},
	}, nil
}

// id is the ID of a task in its queue.
func (t Task) id() string { return "task-" + strconv.Itoa(t.Number) }

// Close closes it.
func (p *Producer) Close() error { return errors.Join(p.attached.Close(), p.client.Close()) }

const (
	// hands is how many goroutines enqueue.
	hands = 8
	// burst is how long tasks gather before they are enqueued all at once.
	burst = time.Second
	// stubborn bounds how long one task is tried to be enqueued.
	stubborn = time.Minute
)

// Produce enqueues all tasks but the first, evenly over a time.
func (p *Producer) Produce(ctx context.Context, total time.Duration) error {
	seed, began := maphash.MakeSeed(), time.Now()
	failed := make([]error, hands)
	var all sync.WaitGroup
	for hand := range hands {
		all.Go(func() {
			for i, t := range p.all {
				if maphash.String(seed, t.Key)%hands != uint64(hand) || i == 0 { //nolint:gosec // it is small
					continue
				}
				due := began.Add((time.Duration(i) * total / time.Duration(len(p.all))).Truncate(burst))
				select {
				case <-ctx.Done():
					return
				case <-time.After(time.Until(due)):
				}
				if failed[hand] = p.send(ctx, t); failed[hand] != nil {
					return
				}
			}
		})
	}
	all.Wait()
	return errors.Join(failed...)
}

// send enqueues a task until it is known that it is enqueued.
func (p *Producer) send(ctx context.Context, t Task) error {
	ctx, cancel := context.WithTimeout(ctx, stubborn)
	defer cancel()
	from := time.Now()
	for tries := 1; ; tries++ {
		err := p.enqueue(ctx, t)
		outside := errors.Is(err, delayqueue.ErrNotInSequence)
		if err == nil || outside || errors.Is(err, asynq.ErrTaskIDConflict) { // the ID is its own
			p.note(t, Window{from, time.Now()}, outside, tries)
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("tasks: task %d is not enqueued: %w", t.Number, err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (p *Producer) note(t Task, when Window, outside bool, tries int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.sent[t.Number]
	p.sent[t.Number] = Sent{when, s.Outside || outside, s.Tries + tries}
}

// enqueue tries to enqueue a task once.
func (p *Producer) enqueue(ctx context.Context, t Task) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	kind := Kinds[t.Kind]
	payload, err := json.Marshal(t)
	if err != nil {
		return err
	}
	task := asynq.NewTask(kind.Name, payload)
	opts := []asynq.Option{asynq.TaskID(t.id()), asynq.Queue(kind.Queue), asynq.MaxRetry(10_000)}
	switch {
	case p.locks == Ordered && kind.Order != middleware.BestEffort:
		_, err = p.attached.EnqueueInOrder(ctx, t.Key, task, opts...)
	case p.locks == Ordered && t.Recorded:
		_, err = p.attached.EnqueueContext(ctx, task, append(opts, attach.Keys(t.Key))...)
	default:
		_, err = p.plain.EnqueueContext(ctx, task, opts...)
	}
	return err
}

// Sent returns what was sent so far, and what was found to be gone since.
func (p *Producer) Sent() (map[int]Sent, []Gone) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.sent), slices.Clone(p.gone)
}
