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
	if _, err := asynq.NewClientFromRedisClient(admin).Enqueue(asynq.NewTask("test", nil),
		asynq.TaskID("a")); err != nil {
		t.Fatal(err)
	}
	c := New(server.Client(t, server.User(t, "u", "~*", "+@all", "-hmget")), Options{Tasks: &witness{}})
	keys := []string{
		"asynq:{default}:pending", "asynq:{default}:paused", "asynq:{default}:active",
		"asynq:{default}:lease",
	}
	if cmd, _ := c.fetch(t.Context(), keys); cmd.Err() == nil {
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
	single, err := locking.NewSingle(client, locking.SingleOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = single.Close() })
	if _, err := single.Acquire(ctx, []string{"hot"}, locking.Options{TTL: time.Minute}); err != nil {
		t.Fatal(err)
	}
	if _, err := asynq.NewClientFromRedisClient(client).Enqueue(asynq.NewTask("test", nil), asynq.TaskID("a")); err != nil {
		t.Fatal(err)
	}
	client.HSet(ctx, "asynq:{default}:t:a", "railtoken:keys", "hot")
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

// A task that waits in memory gets its lock while a fetch is under way. asynq has it before Redis answers, and what the fetch brings
// comes with asynq's next call.
func TestATaskThatIsDeliveredWaitsForNoFetch(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t).Client(t)
	single, err := locking.NewSingle(client, locking.SingleOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = single.Close() })
	if _, err := single.Acquire(t.Context(), []string{"hot"}, locking.Options{TTL: time.Minute}); err != nil {
		t.Fatal(err)
	}
	enqueue := func(id string) {
		if _, err := asynq.NewClientFromRedisClient(client).Enqueue(asynq.NewTask("test", nil), asynq.TaskID(id)); err != nil {
			t.Fatal(err)
		}
	}
	enqueue("delivered")
	client.HSet(t.Context(), "asynq:{default}:t:delivered", "railtoken:keys", "hot")
	var types colocated.Types
	types.Learn("test", time.Minute, colocated.Wait{})
	var deliver func() bool
	conn := New(client, Options{
		Queues: numbered(1), Slots: 10, Locks: locks.Colocated(single), Types: &types,
		Tasks: &witness{park: func(parked func(), give func() bool) bool {
			parked()
			deliver = give
			return true
		}},
	})
	keys := []string{"asynq:{default}:pending", "asynq:{default}:paused", "asynq:{default}:active", "asynq:{default}:lease"}
	if cmd, _ := conn.fetch(t.Context(), keys); cmd.Err() == nil || deliver == nil {
		t.Fatalf("the first fetch answers %v", cmd)
	}
	enqueue("fetched")
	sent, pass := make(chan struct{}), make(chan struct{})
	var once sync.Once
	client.AddHook(redistest.Hook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		once.Do(func() {
			close(sent)
			<-pass
		})
		return next(ctx, cmd)
	}))
	came := make(chan string)
	fetch := func() {
		cmd, _ := conn.fetch(t.Context(), keys)
		message, _ := cmd.Text()
		came <- message
	}
	go fetch()
	redistest.Receive(t, sent, patience)
	if !deliver() {
		t.Fatal("the task was not taken")
	}
	if message := redistest.Receive(t, came, patience); !strings.Contains(message, "delivered") {
		t.Errorf("%q comes, want the one that was delivered", message)
	}
	go fetch()
	close(pass)
	if message := redistest.Receive(t, came, patience); !strings.Contains(message, "fetched") {
		t.Errorf("%q comes, want the one that was fetched", message)
	}
}

// A task without locks comes into memory while an idle server looks whether one is pending. The server does not look again, which
// would be in vain, but sends the fetch that takes the locks.
func TestATaskThatComesDuringALookGetsItsLocks(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t).Client(t)
	single, err := locking.NewSingle(client, locking.SingleOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = single.Close() })
	var types colocated.Types
	types.Learn("test", time.Minute, colocated.Wait{})
	conn := New(client, Options{
		Queues: numbered(1), Slots: 10, Locks: locks.Colocated(single), Types: &types,
		KeysIn: func(string) string { return "hot" }, Tasks: &witness{},
	})
	conn.look.fetched(true)
	sent, pass := make(chan struct{}), make(chan struct{})
	var once sync.Once
	client.AddHook(redistest.Hook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		if cmd.Name() == "exists" {
			once.Do(func() {
				close(sent)
				<-pass
			})
		}
		return next(ctx, cmd)
	}))
	came := make(chan string)
	go func() {
		cmd, _ := conn.fetch(t.Context(), []string{
			"asynq:{default}:pending", "asynq:{default}:paused", "asynq:{default}:active", "asynq:{default}:lease",
		})
		message, _ := cmd.Text()
		came <- message
	}()
	redistest.Receive(t, sent, patience)
	if _, err := asynq.NewClientFromRedisClient(client).Enqueue(asynq.NewTask("test", nil), asynq.TaskID("quick")); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.intake.Fetch(t.Context(), "default"); err != nil { // as with an acknowledgement
		t.Fatal(err)
	}
	for len(conn.intake.Arrived()) > 0 {
		runtime.Gosched()
	}
	close(pass)
	if message := redistest.Receive(t, came, patience); !strings.Contains(message, "quick") {
		t.Errorf("%q comes", message)
	}
	if client.Exists(t.Context(), "railtoken:lock:{hot}").Val() == 0 {
		t.Error("it has come without its lock")
	}
}
