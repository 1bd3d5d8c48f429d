package line_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/colocated"
	"github.com/railtoken/railtoken/internal/line"
	"github.com/railtoken/railtoken/internal/lockaccess"
	"github.com/railtoken/railtoken/locking"
)

// locks does what package locking does not export.
var locks = lockaccess.Of[locking.Locker, locking.Options, *locking.Lease]()

// holds is a Redis with a server that has learned to fetch tasks of type "test" with their locks. All its slots are free,
// its queue is paused, and the lock of "k" is held.
type holds struct {
	*solo
	wait   colocated.Wait
	find   func(*asynq.Task) []string // the keys of those that have no record
	ran    chan string                // IDs of the tasks that its handler was given
	parked chan line.Parked           // those that the script has parked
	calls  chan int                   // and how many at a time
	park   bool                       // it parks those that the script leaves to it
	left   chan line.Parked           // which it has
}

// It is the Parker of the tasks.
func (h *holds) Wait() colocated.Wait { return h.wait }

func (h *holds) Keys() func(*asynq.Task) []string { return h.find }

func (h *holds) ParkFetched(r *line.Run, _ line.Refused) bool {
	if h.park {
		r.Park("k", line.ParkOptions{RetryAfter: wake}, func(p line.Parked) { h.left <- p })
	}
	return h.park
}

func (*holds) Adopt(line.Task, string, *colocated.Taken) colocated.Held { return nil }

func (*holds) LockFetched(context.Context, line.Task, string, []string) (colocated.Held, *colocated.Refused) {
	return nil, nil
}

func (h *holds) Parked(_ line.Refused, places []line.Parked) {
	h.calls <- len(places)
	for _, p := range places {
		h.parked <- p
	}
}

// wake is the time after which the first waiters of a test try again by themselves.
const wake = 20 * time.Second

// anyWait has the script park all that it may.
var anyWait = colocated.Wait{After: wake, Most: wake}

func newHolds(t *testing.T, wait colocated.Wait) *holds {
	t.Helper()
	h := &holds{
		solo: newSolo(t), wait: wait, ran: make(chan string, 1000),
		parked: make(chan line.Parked, 1000), calls: make(chan int, 1000), left: make(chan line.Parked, 1000),
	}
	single, err := locking.NewSingle(h.Client, locking.SingleOptions{})
	h.OK(err)
	t.Cleanup(func() { _ = single.Close() })
	h.Engine.Colocate(locks.Colocated(single))
	h.Serve(4, func(ctx context.Context, id string) error {
		if id == "first" {
			r, err := h.Engine.Run(line.Task{Queue: "default", ID: id})
			if err != nil {
				return err
			}
			r.Learn("test", []string{"free"}, time.Minute, h)
		}
		h.ran <- id
		return errors.Join(errRefused, asynq.RevokeTask) // it goes
	})
	h.record("first", "free")
	receive(t, h.ran)
	h.Until("it has learned", func() bool { return h.Client.Exists(t.Context(), "asynq:{default}:t:first").Val() == 0 })
	h.OK(h.Inspect.PauseQueue("default"))
	h.hold("k", time.Minute)
	return h
}

// hold lets another program lock a key; for ever when ttl is zero.
func (h *holds) hold(key string, ttl time.Duration) {
	h.Helper()
	h.OK(h.Client.Set(h.Context(), "railtoken:lock:{"+key+"}", "another/1/x", ttl).Err())
}

// record enqueues a task with its keys, or without a record if there are none.
func (h *holds) record(id, keys string, opts ...asynq.Option) line.Task {
	h.Helper()
	opts = append(opts, asynq.TaskID(id), asynq.ProcessIn(time.Hour))
	info, err := h.Tasks.Enqueue(asynq.NewTask("test", []byte(id)), opts...)
	h.OK(err)
	if keys != "" {
		h.OK(h.Client.HSet(h.Context(), "asynq:{default}:t:"+id, "railtoken:keys", keys).Err())
	}
	h.OK(h.Inspect.RunTask("default", id))
	return line.Task{Queue: info.Queue, ID: id}
}

// fetch lets the server fetch what is pending.
func (h *holds) fetch() {
	h.Helper()
	h.OK(h.Inspect.UnpauseQueue("default"))
	h.Until("nothing is pending", func() bool { return h.Client.LLen(h.Context(), "asynq:{default}:pending").Val() == 0 })
}

// trace is all that a parked task leaves in Redis, without exact times.
func trace(t *testing.T, client *redis.Client, id string) map[string]string {
	t.Helper()
	ctx := t.Context()
	found := client.HGetAll(ctx, "asynq:{default}:t:"+id).Val()
	score := client.ZScore(ctx, "railtoken:waiters:{k}", "7:default"+id).Val()
	w := line.ParseWait(found[line.WaitField])
	if w.Place != int64(score) {
		found["its place"] = fmt.Sprintf("%d, and %.0f in the set", w.Place, score)
	}
	first := w.First
	found["first"] = time.Since(first).Round(time.Minute).String()
	w.First, w.Place = time.Time{}, 0
	found[line.WaitField] = w.String()
	found["place"] = time.Since(time.UnixMicro(int64(score))).Round(time.Minute).String()
	for _, field := range []string{"railtoken:nonce", "pending_since"} {
		delete(found, field)
	}
	found["rank"] = fmt.Sprint(client.ZRank(ctx, "railtoken:waiters:{k}", "7:default"+id).Val())
	due := time.Unix(int64(client.ZScore(ctx, "asynq:{default}:retry", id).Val()), 0)
	found["timer"] = due.Sub(first).Round(5 * time.Second).String()
	for name, key := range map[string]string{
		"told": "railtoken:lock:{k}:notify", "waiters": "railtoken:waiters:{k}", "index": "railtoken:parked", "unique": found["unique_key"],
	} {
		found[name] = client.PTTL(ctx, key).Val().Round(time.Minute).String()
	}
	age := time.Since(time.UnixMicro(int64(client.ZScore(ctx, "railtoken:parked", "7:default"+id).Val())))
	found["index score"] = age.Round(time.Minute).String()
	for _, list := range []string{"active", "pending"} {
		found[list] = fmt.Sprint(client.LRange(ctx, "asynq:{default}:"+list, 0, -1).Val())
	}
	found["lease"] = fmt.Sprint(client.ZRange(ctx, "asynq:{default}:lease", 0, -1).Val())
	return found
}
