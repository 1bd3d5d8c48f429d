package explain_test

import (
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/inspect/explain"
	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/middleware"
)

var (
	order1 = job{Key: "order:1"}
	broken = job{Key: "order:1", Fails: true}
)

// scene is a cause in real life, and what must be said about it.
type scene struct {
	play     func(*testing.T) (*system, delayqueue.Task)
	state    string
	key      string
	position int
	holder   bool // the holder is the first task
	timer    bool
	why      string
	expected string
	remedy   string
}

var scenes = map[explain.Cause]scene{
	explain.NoSuchTask: {func(t *testing.T) (*system, delayqueue.Task) {
		return newSystem(t).start(), delayqueue.Task{Queue: "default", ID: "none"}
	}, "gone", "", 0, false, false, "knows no task", "never", ""},
	explain.Running: {func(t *testing.T) (*system, delayqueue.Task) {
		s := newSystem(t).start()
		task := s.await(middleware.Acquired, "any", order1)
		s.await(middleware.Parked, "any", order1)
		s.await(middleware.Parked, "any", order1)
		return s, task
	}, "active", "order:1", 0, false, false, "for which 2 tasks wait", "has started", ""},
	explain.Held: {func(t *testing.T) (*system, delayqueue.Task) {
		s := newSystem(t).start()
		s.await(middleware.Acquired, "any", order1, asynq.TaskID("first"))
		return s, s.await(middleware.Parked, "any", order1)
	}, "retry", "order:1", 1, true, true, "it is next", "as soon as the key is released", ""},
	explain.Behind: {func(t *testing.T) (*system, delayqueue.Task) {
		s := newSystem(t).start()
		s.await(middleware.Acquired, "any", order1, asynq.TaskID("first"))
		s.await(middleware.Parked, "any", order1)
		s.await(middleware.Parked, "any", order1)
		return s, s.await(middleware.Parked, "any", order1)
	}, "retry", "order:1", 3, true, true, "behind 2 tasks", "when the tasks before it are done", "railtoken put-first default/"},
	explain.BehindFailed: {func(t *testing.T) (*system, delayqueue.Task) {
		s := newSystem(t).start()
		s.settled(s.await(middleware.Released, "strict", broken), "retry")
		return s, s.await(middleware.Parked, "strict", order1)
	}, "retry", "order:1", 2, false, true, errBroken.Error(), "it is retried at", "repair"},
	explain.QueuePaused: {func(t *testing.T) (*system, delayqueue.Task) {
		s := newSystem(t).start()
		if err := s.inspector.PauseQueue("default"); err != nil {
			t.Log(err) // asynq pauses queues that it does not know yet
		}
		return s, s.enqueue("any", order1)
	}, "pending", "", 0, false, false, "paused", "when the queue is resumed", "railtoken unpause default"},
	explain.QueueUnserved: {func(t *testing.T) (*system, delayqueue.Task) {
		s := newSystem(t).start()
		return s, s.enqueue("any", order1, asynq.Queue("audits"))
	}, "pending", "", 0, false, false, `no running server works on queue "audits"`, "when a server works", "start a worker"},
	explain.RefusesWrites: {func(t *testing.T) (*system, delayqueue.Task) {
		s := newSystem(t).start()
		task := s.enqueue("any", order1, asynq.Queue("audits"))
		if err := s.client.ConfigSet(t.Context(), "maxmemory", "1").Err(); err != nil {
			t.Fatal(err)
		}
		return s, task
	}, "pending", "", 0, false, false, "refuses writes: OOM", "when Redis accepts writes again", "railtoken doctor"},
	explain.RetryLater: {func(t *testing.T) (*system, delayqueue.Task) {
		s := newSystem(t).start()
		return s, s.settled(s.await(middleware.Released, "any", broken, asynq.MaxRetry(3)), "retry")
	}, "retry", "", 0, false, true, "failed 1 of 4 times, the last time with: " + errBroken.Error(), "at 2", "asynq task run --queue=default --id="},
	explain.Scheduled: {func(t *testing.T) (*system, delayqueue.Task) {
		s := newSystem(t).start()
		return s, s.enqueue("any", order1, asynq.ProcessIn(time.Hour))
	}, "scheduled", "", 0, false, true, "its time has not come", "at 2", ""},
	explain.LimitReached: {func(t *testing.T) (*system, delayqueue.Task) {
		s := newSystem(t).start()
		s.await(middleware.Acquired, "any", order1, asynq.TaskID("first"))
		task := s.await(middleware.Parked, "limited", order1)
		if _, err := s.worker.Queue().Wake(t.Context(), "order:1", delayqueue.WakeOptions{}); err != nil {
			t.Fatal(err)
		}
		return s, s.settled(task, "archived")
	}, "archived", "order:1", 0, true, false, "limit on conflicts: 2 conflicts", "never", "railtoken replay --task default/"},
	explain.NoQuorum: {func(t *testing.T) (*system, delayqueue.Task) {
		s := newSystem(t)
		servers := s.lockServers(locking.GuardOff)
		for _, server := range servers[2:] {
			server.Kill()
		}
		return s, s.await(middleware.Unavailable, "any", order1)
	}, "active", "", 0, false, false, "only 2 of 5 lock servers can be reached", "when a majority can be reached", "start the lock servers"},
	explain.Quarantined: {func(t *testing.T) (*system, delayqueue.Task) {
		s := newSystem(t)
		s.lockServers(locking.GuardConnect)
		return s, s.await(middleware.Unavailable, "any", order1)
	}, "active", "", 0, false, false, "only 0 of 5 lock servers may vote", "when a majority may vote, at 2", ""},

	explain.InBacklog: {func(t *testing.T) (*system, delayqueue.Task) {
		s := newSystem(t).start()
		for _, key := range []string{"a", "b"} { // the worker has two slots
			s.await(middleware.Acquired, "any", job{Key: key})
		}
		s.enqueue("any", order1)
		return s, s.enqueue("any", order1)
	}, "pending", "", 0, false, false, "behind one task", "free slot", ""},
	explain.WaitsInSlot: {func(t *testing.T) (*system, delayqueue.Task) {
		s := newSystem(t).start()
		s.await(middleware.Acquired, "any", order1, asynq.TaskID("first"))
		task := s.await(middleware.Refused, "slot", order1)
		// Producers of package attach record the keys.
		if err := s.client.HSet(t.Context(), "asynq:{default}:t:"+task.ID, "railtoken:keys", "order:1").Err(); err != nil {
			t.Fatal(err)
		}
		return s, task
	}, "active", "order:1", 0, true, false, "waits in a worker slot", "as soon as the key is released", ""},
	explain.WorkerSilent: {func(t *testing.T) (*system, delayqueue.Task) {
		s := newSystem(t).start()
		task := s.await(middleware.Acquired, "any", order1)
		s.await(middleware.Parked, "any", order1)
		at := float64(time.Now().Add(8 * time.Second).Unix())
		if err := s.client.ZAddXX(t.Context(), "asynq:{default}:lease", redisZ(at, task.ID)).Err(); err != nil {
			t.Fatal(err)
		}
		return s, task
	}, "active", "order:1", 0, false, false, "key order:1", "a running server brings it back", "by itself; sooner: railtoken depose order:1 --why REASON"},
	explain.WorkerDied: {func(t *testing.T) (*system, delayqueue.Task) {
		s := newSystem(t).start()
		task := s.await(middleware.Acquired, "any", order1)
		at := float64(time.Now().Add(-time.Minute).Unix())
		if err := s.client.ZAddXX(t.Context(), "asynq:{default}:lease", redisZ(at, task.ID)).Err(); err != nil {
			t.Fatal(err)
		}
		return s, task
	}, "active", "", 0, false, false, "it has died, or stood still", "within two minutes", ""},
	explain.Archived: {func(t *testing.T) (*system, delayqueue.Task) {
		s := newSystem(t).start()
		return s, s.settled(s.await(middleware.Released, "any", broken, asynq.MaxRetry(0)), "archived")
	}, "archived", "", 0, false, false, errBroken.Error(), "never", "railtoken replay --task default/"},
	explain.KeyFree: {func(t *testing.T) (*system, delayqueue.Task) {
		s := newSystem(t).start()
		s.await(middleware.Acquired, "any", order1, asynq.TaskID("first"))
		task := s.await(middleware.Parked, "any", order1)
		if err := s.client.Del(t.Context(), "railtoken:lock:{order:1}").Err(); err != nil {
			t.Fatal(err)
		}
		return s, task
	}, "retry", "order:1", 1, false, true, "nothing holds its key", "tries by itself at", "railtoken wake order:1"},
}

func TestMissingOptionsAreNamed(t *testing.T) {
	t.Parallel()
	_, err := explain.Task(t.Context(), explain.Options{}, delayqueue.Task{Queue: "default", ID: "1"})
	if err == nil || !strings.Contains(err.Error(), "Options.Tasks and Options.Inspector") {
		t.Errorf("%v", err)
	}
}

func TestEachCauseIsExplained(t *testing.T) {
	t.Parallel()
	for cause, want := range scenes {
		t.Run(string(cause), func(t *testing.T) {
			t.Parallel()
			s, task := want.play(t)
			got := s.explain(task)
			if got.Cause != cause || got.State != want.state || got.Key != want.key || got.Position != want.position {
				t.Errorf("cause %s, state %s, key %q, place %d; want %s, %s, %q, %d: %+v", got.Cause, got.State, got.Key,
					got.Position, cause, want.state, want.key, want.position, got)
			}
			if want.holder != (got.HolderTask == "default/first") || want.holder && got.HeldSince == nil {
				t.Errorf("holder %q (%q) since %v", got.HolderTask, got.Holder, got.HeldSince)
			}
			if want.timer != (got.Timer != nil) {
				t.Errorf("timer %v", got.Timer)
			}
			for text, part := range map[string]string{got.Why: want.why, got.Expected: want.expected, got.Remedy: want.remedy} {
				if !strings.Contains(text, part) {
					t.Errorf("%q does not say %q", text, part)
				}
			}
			if got.Task != task.String() {
				t.Errorf("task %q, want %q", got.Task, task)
			}
		})
	}
}

// A handler that ignores its context goes on after its task was cancelled.
func TestACancelledRunSaysByWhom(t *testing.T) {
	t.Parallel()
	s := newSystem(t).start()
	task := s.await(middleware.Acquired, "any", order1)
	word := `{"by":"ann","why":"the customer has cancelled"}` // without a message, so that its handler goes on
	if err := s.client.HSet(t.Context(), "asynq:{default}:t:"+task.ID, "railtoken:cancel", word).Err(); err != nil {
		t.Fatal(err)
	}
	got := s.explain(task)
	if want := "cancelled by ann (the customer has cancelled), and its handler has not returned"; !strings.Contains(got.Why, want) {
		t.Errorf("%q does not say %q", got.Why, want)
	}
}
