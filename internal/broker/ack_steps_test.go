package broker

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/colocated"
	"github.com/railtoken/railtoken/internal/ends"
	"github.com/railtoken/railtoken/internal/testing/redistest"
)

// steps notes what happens when a run ends, in this order.
type steps struct {
	witness
	owner  string // of the lock; "" for one that no script can release
	strict bool
	answer bool // Acknowledge answers itself
	deaf   bool // nobody hears of the end
	err    error

	mu   sync.Mutex // a repeated call is another goroutine's
	done []string
}

func (s *steps) note(step string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.done = append(s.done, step)
}

func (s *steps) Release(a Acknowledgement) (*colocated.Release, func()) {
	s.note("release of " + a.Script)
	if a.Repeated {
		return nil, nil
	}
	keys := []string{"railtoken:lock:{k}", "railtoken:lock:{k}:fence", "railtoken:lock:{k}:notify"}
	r := colocated.NewRelease(keys, s.owner, []int64{1}, func(_ context.Context, sent bool) (colocated.Outcome, error) {
		if sent {
			s.note("sent before")
		}
		return colocated.Outcome{}, nil
	})
	r.Strict = s.strict
	r.Then(func(o colocated.Outcome, _ error) {
		switch {
		case o.Scripted && o.Lost > 0:
			s.note("lost by the script")
		case o.Scripted:
			s.note("released by the script")
		default:
			s.note("released")
		}
	})
	return r, func() { s.note("lost") }
}

func (s *steps) Ending(Acknowledgement) *ends.Ending {
	if s.deaf {
		return nil
	}
	return &ends.Ending{Key: "railtoken:ends:{default}:completed", Member: "a", Told: func() { s.note("told") }}
}

func (s *steps) Acknowledge(_ context.Context, a Acknowledgement) (bool, func(), error) {
	if a.Run == "" {
		s.note("without a run")
	}
	return s.answer, func() { s.note("ended") }, s.err
}

// ended runs the only task of a server with one slot, and returns it before its acknowledgement.
func (s *steps) ended(t *testing.T) (*miniredis.Miniredis, *redis.Client, *Conn) {
	t.Helper()
	m, client := newVirtual(t)
	client.Set(t.Context(), "railtoken:lock:{k}", "me", 0)
	conn := New(client, Options{Queues: numbered(1), Slots: 1, Marks: true, Tasks: s})
	enqueue(t, client, "a", "")
	if cmd, _ := conn.fetch(t.Context(), queueKeys); cmd.Err() != nil {
		t.Fatal(cmd.Err())
	}
	if !conn.intake.Full() {
		t.Fatal("the task has no slot")
	}
	return m, client, conn
}

func (s *steps) want(t *testing.T, done ...string) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Equal(s.done, done) {
		t.Errorf("%s; want %s", strings.Join(s.done, ", "), strings.Join(done, ", "))
	}
}

// requeueKeys are those of asynq's requeue.
var requeueKeys = []string{"asynq:{default}:active", "asynq:{default}:lease", "asynq:{default}:pending", "asynq:{default}:t:a"}

func TestTheEndOfARunTakesItsSteps(t *testing.T) {
	t.Parallel()
	if err := Recognise(); err != nil { // the texts of asynq's scripts are at hand from then on
		t.Fatal(err)
	}
	for name, one := range map[string]struct {
		*steps
		acknowledge func(t *testing.T, m *miniredis.Miniredis, conn *Conn) error
		want        []string
		active      int // how many tasks are active then
		marked      int
		busy        bool
	}{
		"one script ends it": {
			steps: &steps{owner: "me"}, want: []string{"release of done", "told", "released by the script", "ended"}, marked: 1,
		},
		"nobody hears of it": {
			steps: &steps{owner: "me", deaf: true}, want: []string{"release of done", "released by the script", "ended"},
		},
		"another server has the task": {
			steps: &steps{owner: "me"},
			acknowledge: func(t *testing.T, m *miniredis.Miniredis, conn *Conn) error {
				t.Helper()
				m.HSet("asynq:{default}:t:a", "pending_since", "another")
				return ack(t.Context(), conn)
			},
			want: []string{"release of done", "released by the script", "ended"}, active: 1,
		},
		"no script can release its lock": {
			steps: &steps{}, want: []string{"release of done", "released", "told", "ended"}, marked: 1,
		},
		"the package of the tasks answers": {
			steps: &steps{owner: "me", answer: true}, want: []string{"release of done", "released", "ended"}, active: 1,
		},
		"its lock was lost": {
			steps: &steps{owner: "another", strict: true},
			want:  []string{"release of done", "lost by the script", "lost", "ended"}, active: 1,
		},
		"Redis refuses the script": {
			steps: &steps{owner: "me"},
			acknowledge: func(t *testing.T, m *miniredis.Miniredis, conn *Conn) error {
				t.Helper()
				m.SetError("READONLY")
				defer m.SetError("")
				if err := ack(t.Context(), conn); err == nil || !strings.Contains(err.Error(), "READONLY") {
					t.Errorf("it is answered with %v", err)
				}
				return nil
			},
			want: []string{"release of done", "sent before", "released", "ended"}, active: 1,
		},
		"asynq puts it back": {
			steps: &steps{owner: "me"},
			acknowledge: func(t *testing.T, _ *miniredis.Miniredis, conn *Conn) error {
				t.Helper()
				return conn.EvalSha(t.Context(), sumNamed(t, "requeue"), requeueKeys, "a").Err()
			},
			want: []string{"release of requeue", "released", "ended"},
		},
		"the server has been drained": {
			steps: &steps{owner: "me"},
			acknowledge: func(t *testing.T, _ *miniredis.Miniredis, conn *Conn) error {
				t.Helper()
				conn.drain()
				return ack(t.Context(), conn)
			},
			want: []string{"release of done", "told", "released", "ended"}, marked: 1,
		},
		"it is repeated": {
			steps: &steps{owner: "me"},
			acknowledge: func(t *testing.T, m *miniredis.Miniredis, conn *Conn) error {
				t.Helper()
				m.SetError("READONLY")
				if err := ack(t.Context(), conn); err == nil {
					t.Error("it is answered")
				}
				m.SetError("")
				tasks, _ := conn.tasks.(*steps)
				tasks.done = nil
				over, cancel := context.WithCancel(t.Context())
				cancel()
				return ack(over, conn)
			},
			want: []string{"release of done", "told", "ended"}, marked: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := one.steps
				m, client, conn := s.ended(t)
				sendKnown(t, client)
				acknowledge := one.acknowledge
				if acknowledge == nil {
					acknowledge = func(t *testing.T, _ *miniredis.Miniredis, conn *Conn) error {
						t.Helper()
						return ack(t.Context(), conn)
					}
				}
				if err := acknowledge(t, m, conn); err != nil {
					t.Error(err)
				}
				s.want(t, one.want...)
				active, marked := client.LLen(t.Context(), "asynq:{default}:active").Val(), client.ZCard(t.Context(), "railtoken:ends:{default}:completed").Val()
				if int(active) != one.active || int(marked) != one.marked {
					t.Errorf("%d tasks are active, want %d, and %d ends are marked, want %d", active, one.active, marked, one.marked)
				}
				if conn.intake.Full() {
					t.Error("the slot is not free")
				}
				began := time.Now()
				conn.drain()
				if time.Since(began) > 0 {
					t.Error("a call is still under way")
				}
			})
		})
	}
}

// Nobody knows whether the script has ended the run and released its locks. It is sent again, and the locks stay until it is answered.
func TestALockStaysUntilTheEndOfItsRunIsAnswered(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &steps{owner: "me"}
		_, client, conn := s.ended(t)
		sendKnown(t, client)
		began := time.Now()
		client.AddHook(redistest.Hook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
			if strings.HasPrefix(cmd.Name(), "eval") && time.Since(began) < time.Second {
				return redistest.Fail(cmd, errors.New("connection reset by peer"))
			}
			return next(ctx, cmd)
		}))
		if err := ack(t.Context(), conn); err != nil {
			t.Error(err)
		}
		s.want(t, "release of done", "ended")
		time.Sleep(5 * time.Second)
		s.want(t, "release of done", "ended", "released by the script")
		if n := client.LLen(t.Context(), "asynq:{default}:active").Val(); n != 0 {
			t.Errorf("%d tasks are active", n)
		}
	})
}

// An asynq that began the run through another client ends it through this one: those who hear of ends hear of it.
func TestTheEndOfARunThatBeganElsewhereIsMarked(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &steps{}
		_, client, _ := s.ended(t)
		sendKnown(t, client)
		here := New(client, Options{Queues: numbered(1), Slots: 1, Marks: true, Tasks: s})
		if err := ack(t.Context(), here); err != nil {
			t.Error(err)
		}
		s.want(t, "release of done", "released", "without a run", "told", "ended")
		if n := client.ZCard(t.Context(), "railtoken:ends:{default}:completed").Val(); n != 1 {
			t.Errorf("%d ends are marked", n)
		}
	})
}

// sendKnown has Redis and this process know asynq's script that these tests send, as Recognise does.
func sendKnown(t *testing.T, client *redis.Client) {
	t.Helper()
	if err := client.ScriptLoad(t.Context(), doneText).Err(); err != nil {
		t.Fatal(err)
	}
	texts.LoadOrStore(sumOf(doneText), doneText)
}

// asynq is told what the package of the tasks says.
func TestTheAnswerToAnAcknowledgementIsThatOfItsTasks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &steps{owner: "me", answer: true, err: errors.New("not parked")}
		_, _, conn := s.ended(t)
		if err := ack(t.Context(), conn); !errors.Is(err, s.err) {
			t.Errorf("it is answered with %v", err)
		}
	})
}

// A run that an asynq ends whose script is not known needs its slot no more.
func TestAnUnknownAcknowledgementFreesTheSlot(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &steps{owner: "me"}
		_, client, conn := s.ended(t)
		text := strings.Replace(doneText, "if redis", "-- of another version\nif redis", 1)
		keys := []string{"asynq:{default}:active", "asynq:{default}:lease", "asynq:{default}:t:a", "asynq:{default}:processed:2030-01-01", "asynq:{default}:processed"}
		if err := redis.NewScript(text).Run(t.Context(), conn, keys, "a", 0, 0).Err(); err != nil {
			t.Error(err)
		}
		if n := client.LLen(t.Context(), "asynq:{default}:active").Val(); n != 0 || conn.intake.Full() {
			t.Errorf("%d tasks are active, and the slot is taken: %v", n, conn.intake.Full())
		}
		s.want(t, "release of ", "released", "ended")
	})
}

// The tasks in memory go back at once, and not when they have lain there for too long.
func TestAServerThatIsOverGivesBackItsTasks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, client := newVirtual(t)
		conn := New(client, Options{Queues: numbered(1), Slots: 2, Tasks: &witness{}})
		enqueue(t, client, "a", "")
		if _, err := conn.intake.Fetch(t.Context(), "default"); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		conn.EvalSha(t.Context(), sumNamed(t, "clearServerState"), nil)
		synctest.Wait()
		if info, err := asynq.NewInspectorFromRedisClient(client).GetTaskInfo("default", "a"); err != nil || info.State != asynq.TaskStatePending || time.Since(began) > 0 {
			t.Errorf("%+v, %v, after %v", info, err, time.Since(began))
		}
	})
}
