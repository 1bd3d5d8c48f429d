package line_test

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/line"
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
	opts := *r.Client.Options()
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
func (r *solo) loses(text string, retries int) (*line.Engine, *atomic.Int32) {
	r.Helper()
	client, left := r.breaking(text, retries)
	return r.on(client), left
}

// on returns a Queue on another client.
func (r *solo) on(client redis.UniversalClient) *line.Engine {
	r.Helper()
	queue, err := line.New(client, line.Options{})
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() { _ = queue.Close() })
	return queue
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
				r.Delayed("warm")
				r.Delayed("warmer", asynq.Unique(time.Minute))
			}
			for _, lost := range []string{"railtoken:sequence:{k}", "payload-of-k"} {
				queue, left := r.loses(lost, 3)
				pending := r.Client.LLen(t.Context(), "asynq:{default}:pending").Val()
				info, err := queue.EnqueueInOrder(t.Context(), "k", "test", []byte("payload-of-k"), nil, opts...)
				if err != nil {
					t.Fatalf("losing the answer to %s: %v", lost, err)
				}
				if left.Load() > 0 && (!scheduled || lost == "payload-of-k") {
					t.Errorf("no answer to %s was lost", lost)
				}
				task := line.Task{Queue: info.Queue, ID: info.ID}
				if got := r.State(task); got != info.State {
					t.Errorf("Enqueue says %v, it is %v", info.State, got)
				}
				if got := r.line("k"); !scheduled && !slices.Equal(got, []string{task.ID}) || scheduled &&
					len(got) > 0 {
					t.Errorf("in line are %v", got)
				}
				if n := r.Client.LLen(t.Context(), "asynq:{default}:pending").Val() - pending; !scheduled && n != 1 {
					t.Errorf("%d tasks were enqueued, want 1", n)
				}
				r.remove(task, "k")
				r.Remove(task)
			}
		})
	}
}

// The answer to a task is lost and nobody sends it again: the caller does not know. It joins the line when it runs.
func TestATaskOfUnknownFateRuns(t *testing.T) {
	t.Parallel()
	r := newSolo(t)
	failing, left := r.loses("payload-of-k", -1)
	info, err := failing.EnqueueInOrder(t.Context(), "k", "test", []byte("payload-of-k"), nil, asynq.TaskID("id"))
	if err == nil || errors.Is(err, line.ErrNotInSequence) || info != nil || left.Load() > 0 {
		t.Fatalf("enqueueing gives %v, %v", info, err)
	}
	if got := r.line("k"); len(got) != 0 {
		t.Errorf("in line are %v", got)
	}
	task := line.Task{Queue: "default", ID: "id"}
	r.Become(task, asynq.TaskStatePending)
	if turn := r.turn(task, "k", line.JoinOptions{Begins: true}); turn.Ahead != 0 {
		t.Errorf("it stands at %+v", turn)
	}
}

// A producer that repeats what it does not know to be done finds the order as if it had been done at once.
func TestATaskThatIsEnqueuedAgainIsInItsSequence(t *testing.T) {
	t.Parallel()
	r := newSolo(t)
	failing, _ := r.loses("payload-of-k", -1)
	if _, err := failing.EnqueueInOrder(t.Context(), "k", "test", []byte("payload-of-k"), nil,
		asynq.TaskID("id")); err == nil {
		t.Fatal("no answer was lost")
	}
	if info, err := r.Engine.EnqueueInOrder(t.Context(), "k", "test", nil, nil, asynq.TaskID("id")); !errors.Is(err,
		asynq.ErrTaskIDConflict) || info != nil {
		t.Fatalf("a second one gives %v, %v", info, err)
	}
	later := r.enqueue("k")
	if turn := r.turn(later, "k", line.JoinOptions{}); turn.Ahead != 1 || turn.First.ID != "id" {
		t.Errorf("a later one stands at %+v", turn)
	}
}
