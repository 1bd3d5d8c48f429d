package broker

import (
	"context"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/asynqwire"
	"github.com/railtoken/railtoken/internal/colocated"
	"github.com/railtoken/railtoken/internal/lockaccess"
	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/locking"
)

// locks does what package locking does not export.
var locks = lockaccess.Of[locking.Locker, locking.Options, *locking.Lease]()

// Redis undoes nothing of a script that fails: without a lease asynq would never recover the task.
func TestAFetchThatFailsHalfwayLeavesALease(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	admin := server.Client(t)
	enqueue(t, admin, "a", "")
	c := New(server.Client(t, server.User(t, "u", "~*", "+@all", "-hmget")), Options{Tasks: &witness{}})
	if cmd, _ := c.fetch(t.Context(), queueKeys); cmd.Err() == nil {
		t.Error("the fetch has not failed")
	}
	if err := admin.ZScore(t.Context(), "asynq:{default}:lease", "a").Err(); err != nil {
		t.Error(err)
	}
}

// endless is a script that parks no task: it enqueues each once more, until there is the key "ended".
const endless = `
return function(group, id)
  group.since, group.ahead = '1', 0
  redis.call('LREM', group.prefix .. 'active', 1, id)
  if redis.call('EXISTS', 'ended') == 0 then
    redis.call('LPUSH', group.prefix .. 'pending', id)
  end
  return true
end`

// Producers enqueue tasks of a held key without an end. The server shuts down, and its fetches look alive until then.
func TestAFloodOfRefusedTasksHoldsUpNoShutdown(t *testing.T) {
	t.Parallel()
	for name, byScript := range map[string]bool{"parked by calls of their own": false, "parked by the fetch": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			flood(t, byScript)
		})
	}
}

func flood(t *testing.T, byScript bool) {
	t.Helper()
	client := redistest.Start(t).Client(t)
	ctx := t.Context()
	single := newSingle(t, client)
	holdHot(t, single)
	enqueue(t, client, "a", "hot")
	var types colocated.Types
	types.Learn("test", time.Minute, colocated.Wait{})
	var parks atomic.Int64
	flooded, ended := make(chan struct{}), make(chan struct{})
	opts := Options{
		Interval: 10 * time.Millisecond, Queues: numbered(1), Slots: 10, Locks: locks.Colocated(single), Types: &types,
		Tasks: &witness{answers: func(Acknowledgement) (bool, error) { return false, nil }, park: func(parked func(), _ func() bool) bool {
			defer parked()
			select {
			case <-ended:
				return true
			default:
			}
			client.LMove(ctx, "asynq:{default}:active", "asynq:{default}:pending", "LEFT", "LEFT")
			if parks.Add(1) == 300 {
				close(flooded)
			}
			return true
		}},
	}
	if byScript {
		types = colocated.Types{}
		types.Learn("test", time.Minute, colocated.Wait{After: time.Second, Most: time.Minute})
		opts.Parking = &Parking{Source: endless, Parked: func(groups []Parked) {
			for _, g := range groups {
				if len(g.IDs) > 100 {
					t.Errorf("a call has parked %d tasks", len(g.IDs))
				}
				if before := parks.Add(int64(len(g.IDs))) - int64(len(g.IDs)); before < 1000 && parks.Load() >= 1000 {
					close(flooded)
				}
			}
		}}
	}
	conn := New(client, opts)
	s := bareServer(t, conn, func(context.Context, *asynq.Task) error { return nil })
	redistest.Receive(t, flooded, patience)
	began := time.Now()
	stopped := make(chan struct{})
	go func() {
		s.Shutdown()
		close(stopped)
	}()
	select {
	case <-stopped:
	case <-time.After(patience):
		close(ended)
		client.Set(ctx, "ended", 1, 0)
		t.Errorf("the shutdown has taken more than %v, in a fetch that began %v before it", patience,
			began.Sub(conn.Pulse().Began))
		<-stopped
	}
}

// queueKeys are those of asynq's fetch from the default queue.
var queueKeys = []string{"asynq:{default}:pending", "asynq:{default}:paused", "asynq:{default}:active", "asynq:{default}:lease"}

func newSingle(t *testing.T, client *redis.Client) *locking.Single {
	t.Helper()
	single, err := locking.NewSingle(client, locking.SingleOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = single.Close() })
	return single
}

// holdHot locks the key "hot".
func holdHot(t *testing.T, l locking.Locker) {
	t.Helper()
	if _, err := l.Acquire(t.Context(), []string{"hot"}, locking.Options{TTL: time.Minute}); err != nil {
		t.Fatal(err)
	}
}

// enqueue enqueues a task of the type "test", and records its key, if it has one.
func enqueue(t *testing.T, client *redis.Client, id, key string) {
	t.Helper()
	if _, err := asynq.NewClientFromRedisClient(client).Enqueue(asynq.NewTask("test", nil), asynq.TaskID(id)); err != nil {
		t.Fatal(err)
	}
	if key != "" {
		client.HSet(t.Context(), asynqwire.Hash("default", id), "railtoken:keys", key)
	}
}

// fetcher is a Conn whose tasks of the type "test" are fetched with their locks.
type fetcher struct {
	*Conn
	client *redis.Client
	came   chan string // the message of each task that asynq gets, "" for none
}

func newFetcher(t *testing.T, opts Options) *fetcher {
	t.Helper()
	f := &fetcher{client: redistest.Start(t).Client(t), came: make(chan string)}
	single := newSingle(t, f.client)
	holdHot(t, single)
	var types colocated.Types
	types.Learn("test", time.Minute, colocated.Wait{})
	opts.Queues, opts.Slots, opts.Locks, opts.Types = numbered(1), 10, locks.Colocated(single), &types
	f.Conn = New(f.client, opts)
	return f
}

// ask asks for a task as asynq does.
func (f *fetcher) ask(ctx context.Context) {
	cmd, _ := f.fetch(ctx, queueKeys)
	message, _ := cmd.Text()
	f.came <- message
}

// holdBack keeps the next command of a name, or of any name if it is empty, until pass is called. sent is closed once it is kept.
func (f *fetcher) holdBack(name string) (sent <-chan struct{}, pass func()) {
	caught, passes := make(chan struct{}), make(chan struct{})
	var once sync.Once
	f.client.AddHook(redistest.Hook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		if name == "" || cmd.Name() == name {
			once.Do(func() {
				close(caught)
				<-passes
			})
		}
		return next(ctx, cmd)
	}))
	return caught, func() { close(passes) }
}

// A task that waits in memory gets its lock while a fetch is under way. asynq has it before Redis answers, and what the fetch brings
// comes with asynq's next call.
func TestATaskThatIsDeliveredWaitsForNoFetch(t *testing.T) {
	t.Parallel()
	var deliver func() bool
	f := newFetcher(t, Options{Tasks: &witness{park: func(parked func(), give func() bool) bool {
		parked()
		deliver = give
		return true
	}}})
	enqueue(t, f.client, "delivered", "hot")
	if cmd, _ := f.fetch(t.Context(), queueKeys); cmd.Err() == nil || deliver == nil {
		t.Fatalf("the first fetch answers %v", cmd)
	}
	enqueue(t, f.client, "fetched", "")
	sent, pass := f.holdBack("")
	go f.ask(t.Context())
	redistest.Receive(t, sent, patience)
	if !deliver() {
		t.Fatal("the task was not taken")
	}
	if message := redistest.Receive(t, f.came, patience); !strings.Contains(message, "delivered") {
		t.Errorf("%q comes, want the one that was delivered", message)
	}
	go f.ask(t.Context())
	pass()
	if message := redistest.Receive(t, f.came, patience); !strings.Contains(message, "fetched") {
		t.Errorf("%q comes, want the one that was fetched", message)
	}
}

// A task without locks comes into memory while an idle server looks whether one is pending. The server does not look again, which
// would be in vain, but sends the fetch that takes the locks.
func TestATaskThatComesDuringALookGetsItsLocks(t *testing.T) {
	t.Parallel()
	f := newFetcher(t, Options{KeysIn: func(string) string { return "cold" }, Tasks: &witness{}})
	f.look.fetched(true)
	sent, pass := f.holdBack("exists")
	var looks atomic.Int32
	f.client.AddHook(redistest.Hook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		if cmd.Name() == "exists" {
			looks.Add(1)
		}
		return next(ctx, cmd)
	}))
	go f.ask(t.Context())
	redistest.Receive(t, sent, patience)
	enqueue(t, f.client, "quick", "")
	if _, err := f.intake.Fetch(t.Context(), "default"); err != nil { // as with an acknowledgement
		t.Fatal(err)
	}
	for began := time.Now(); len(f.intake.Arrived()) > 0; runtime.Gosched() {
		if time.Since(began) > patience {
			t.Fatal("nobody waits for what comes")
		}
	}
	pass()
	message := redistest.Receive(t, f.came, patience)
	for began := time.Now(); message == "" && time.Since(began) < patience; { // a slow machine: asynq asks again
		go f.ask(t.Context())
		message = redistest.Receive(t, f.came, patience)
	}
	if !strings.Contains(message, "quick") {
		t.Errorf("%q comes", message)
	}
	if n := looks.Load(); n != 1 {
		t.Errorf("the server has looked %d times, want once", n)
	}
	if f.client.Exists(t.Context(), "railtoken:lock:{cold}").Val() == 0 {
		t.Error("it has come without its lock")
	}
}

// A function of the user ends the goroutine of a fetch.
func TestAFetchWhoseGoroutineEndsIsOver(t *testing.T) {
	t.Parallel()
	f := newFetcher(t, Options{Tasks: &witness{park: func(func(), func() bool) bool {
		runtime.Goexit()
		return false
	}}})
	enqueue(t, f.client, "refused", "hot")
	go f.ask(t.Context())
	if message := redistest.Receive(t, f.came, patience); message != "" {
		t.Errorf("%q comes", message)
	}
	enqueue(t, f.client, "next", "")
	go f.ask(t.Context())
	if message := redistest.Receive(t, f.came, patience); !strings.Contains(message, "next") {
		t.Errorf("%q comes, want the next one", message)
	}
}
