package delayqueue_test

import (
	"context"
	"crypto/rand"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/delayqueue"
)

// losing is a connection that breaks before the answer to a command that holds a text, once.
type losing struct {
	net.Conn
	text string
	left *atomic.Int32
	lose bool
}

func (c *losing) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.lose = c.lose || strings.Contains(string(b), c.text) && c.left.Add(-1) >= 0
	return n, err
}

func (c *losing) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.lose && err == nil {
		_ = c.Close()
		return 0, io.EOF
	}
	return n, err
}

// breaking returns a client that loses the answer to the first command that holds the text.
func (r *solo) breaking(text string, retries int) (*redis.Client, *atomic.Int32) {
	r.Helper()
	// The scripts must be known, or the answer that is lost is that they are not.
	r.enqueue("warm")
	r.enqueue("warm", asynq.Unique(time.Second), asynq.Queue(rand.Text()))
	left := new(atomic.Int32)
	left.Store(1)
	opts := *r.client.Options()
	opts.MaxRetries = retries
	opts.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, addr)
		return &losing{Conn: conn, text: text, left: left}, err
	}
	client := redis.NewClient(&opts)
	r.Cleanup(func() { _ = client.Close() })
	return client, left
}

// loses returns a Queue on such a client.
func (r *solo) loses(text string, retries int) (*delayqueue.Queue, *atomic.Int32) {
	r.Helper()
	client, left := r.breaking(text, retries)
	queue, err := delayqueue.New(client, delayqueue.Options{})
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() { _ = queue.Close() })
	return queue, left
}

func TestALostAnswerIsNotAConflict(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string][]asynq.Option{
		"own ID":    nil,
		"given ID":  {asynq.TaskID("id")},
		"unique":    {asynq.Unique(time.Minute)},
		"scheduled": {asynq.ProcessIn(time.Hour)},
		"later":     {asynq.ProcessIn(time.Hour), asynq.Unique(time.Minute)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newSolo(t)
			scheduled := name == "scheduled" || name == "later"
			if scheduled {
				r.delayed("warm")
				r.delayed("warmer", asynq.Unique(time.Minute))
			}
			for _, lost := range []string{"railtoken:line:{k}", "payload-of-k"} {
				queue, left := r.loses(lost, 3)
				info, err := queue.Enqueue(t.Context(), "k", asynq.NewTask("test", []byte("payload-of-k")), opts...)
				if err != nil {
					t.Fatalf("losing the answer to %s: %v", lost, err)
				}
				if left.Load() > 0 && (!scheduled || lost == "payload-of-k") {
					t.Errorf("no answer to %s was lost", lost)
				}
				task := delayqueue.Task{Queue: info.Queue, ID: info.ID}
				if got := r.state(task); got != info.State {
					t.Errorf("Enqueue says %v, it is %v", info.State, got)
				}
				if !scheduled {
					at, ok := delayqueue.PlaceOf(task, "k", r.headers(task))
					if turn := r.turn(task, "k", delayqueue.TurnOptions{}); !ok || turn.Ahead != 0 || !turn.At.Equal(at) {
						t.Errorf("its turn is %+v, its headers say %v (%v)", turn, at, ok)
					}
					if _, err := queue.LeaveLine(t.Context(), task, "k"); err != nil {
						t.Fatal(err)
					}
				}
				r.remove(task)
			}
		})
	}
}

func TestATaskWhoseEnqueueingFailedDoesNotBlockTheLine(t *testing.T) {
	t.Parallel()
	r := newSolo(t)
	failing, left := r.loses("railtoken:line:{k}", -1)
	if _, err := failing.Enqueue(t.Context(), "k", asynq.NewTask("test", nil)); err == nil || left.Load() > 0 {
		t.Fatalf("enqueueing gives %v", err)
	}
	if n := len(r.line("k")); n != 1 {
		t.Fatalf("%d are in line, want the one that will not come", n)
	}
	task, _ := r.enqueue("k")
	if turn := r.turn(task, "k", delayqueue.TurnOptions{}); turn.Ahead != 0 {
		t.Errorf("the next one stands at %+v", turn)
	}
}

// The answer to a task is lost and nobody sends it again: the caller does not know, and the task keeps its place.
func TestATaskOfUnknownFateKeepsItsPlace(t *testing.T) {
	t.Parallel()
	r := newSolo(t)
	failing, left := r.loses("payload-of-k", -1)
	if _, err := failing.Enqueue(t.Context(), "k", asynq.NewTask("test", []byte("payload-of-k")), asynq.TaskID("id")); err == nil || left.Load() > 0 {
		t.Fatalf("enqueueing gives %v", err)
	}
	later, _ := r.enqueue("k")
	if turn := r.turn(later, "k", delayqueue.TurnOptions{}); turn.Ahead != 1 || turn.First.ID != "id" {
		t.Errorf("a later one stands at %+v", turn)
	}
}

// The answer is lost, the task is sent again and refused, and by the time that Enqueue looks it has run.
func TestATaskThatWasSentTwiceAndIsDoneIsNoConflict(t *testing.T) {
	t.Parallel()
	r := newSolo(t)
	client, _ := r.breaking("payload-of-k", 3)
	client.AddHook(before(func(cmd redis.Cmder) {
		if cmd.Name() == "sismember" {
			for _, id := range r.client.LRange(t.Context(), "asynq:{k}:pending", 0, -1).Val() {
				r.remove(delayqueue.Task{Queue: "k", ID: id})
			}
		}
	}))
	queue, err := delayqueue.New(client, delayqueue.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = queue.Close() })
	info, err := queue.Enqueue(t.Context(), "k", asynq.NewTask("test", []byte("payload-of-k")), asynq.Queue("k"))
	if err != nil || info.State != asynq.TaskStateCompleted {
		t.Errorf("enqueueing gives %+v, %v", info, err)
	}
}
