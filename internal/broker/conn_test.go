package broker

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/colocated"
	"github.com/railtoken/railtoken/internal/ends"
	"github.com/railtoken/railtoken/internal/testing/asynqtest"
	"github.com/railtoken/railtoken/internal/testing/redistest"
)

// witness answers for tasks as it is told, and notes what it is asked.
type witness struct {
	mu      sync.Mutex
	fetched []Fetched
	acks    []Acknowledgement
	answers func(a Acknowledgement) (bool, error)
	park    func(parked func(), deliver func() bool) bool
}

func (w *witness) Fetched(f Fetched) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fetched = append(w.fetched, f)
}

func (w *witness) Park(_ Fetched, parked func(), deliver func() bool) bool {
	return w.park != nil && w.park(parked, deliver)
}

func (*witness) Lock(all []Fetched, _ func(Fetched)) []Fetched { return all }

func (*witness) Left(Fetched) *colocated.Release { return nil }

func (*witness) Release(Acknowledgement) (*colocated.Release, func()) {
	return nil, nil
}

func (w *witness) Ending(Acknowledgement) *ends.Ending { return nil }

func (w *witness) Acknowledge(_ context.Context, a Acknowledgement) (bool, func(), error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.acks = append(w.acks, a)
	answered, err := w.answers(a)
	return answered, nil, err
}

// scripts returns the acknowledgements of a task, by asynq's names.
func (w *witness) scripts(id string) (names []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, a := range w.acks {
		if a.ID == id {
			names = append(names, a.Script)
		}
	}
	return names
}

func TestEveryAcknowledgementIsAskedAbout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, _ := redistest.Virtual(t)
		c := redistest.Patient(t, m)
		w := &witness{answers: func(Acknowledgement) (bool, error) { return false, nil }}
		s := bareServer(t, New(c, Options{Queues: numbered(1), Tasks: w}), func(ctx context.Context, task *asynq.Task) error {
			switch task.Type() {
			case "retry", "archive":
				return errors.New("the reason")
			case "requeue":
				<-ctx.Done()
			}
			return nil
		}, func(cfg *asynq.Config) { cfg.ShutdownTimeout = time.Second })
		unique := asynq.Unique(time.Minute)
		for id, opts := range map[string][]asynq.Option{
			"done": nil, "doneUnique": {unique}, "markAsComplete": {asynq.Retention(time.Hour)},
			"markAsCompleteUnique": {
				asynq.Retention(time.Hour),
				unique,
			}, "retry": {asynq.MaxRetry(1)}, "archive": {asynq.MaxRetry(0)}, "requeue": nil,
		} {
			asynqtest.Enqueue(t, m, asynq.NewTask(id, nil), append(opts, asynq.TaskID(id))...)
		}
		time.Sleep(5 * time.Second)
		s.Shutdown()
		for _, id := range []string{
			"done", "doneUnique", "markAsComplete", "markAsCompleteUnique", "retry", "archive",
			"requeue",
		} {
			if got := w.scripts(id); !slices.Equal(got, []string{id}) {
				t.Errorf("task %s: asked about %v", id, got)
			}
		}
		for _, a := range w.acks {
			if a.Queue != "default" ||
				a.Counted != (a.Script == "retry") || a.Requeues() != (a.Script == "requeue") {
				t.Errorf("%+v", a)
			}
		}
		if n := len(w.fetched); n != 7 {
			t.Errorf("%d tasks were fetched, want 7", n)
		}
		runs := map[string]bool{}
		for _, f := range w.fetched {
			runs[f.Run] = true
			if f.Queue != "default" || f.Wait != "" {
				t.Errorf("%+v", f)
			}
		}
		if len(runs) != 7 {
			t.Errorf("seven runs have the names %v", runs)
		}
	})
}

func TestAnAnsweredAcknowledgementIsNotSent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, _ := redistest.Virtual(t)
		c := redistest.Patient(t, m)
		replies := []error{errors.New("connection reset by peer"), nil}
		w := &witness{answers: func(Acknowledgement) (bool, error) {
			err := replies[0]
			replies = replies[1:]
			return true, err
		}}
		s := bareServer(t, New(c, Options{Queues: numbered(1), Tasks: w}),
			func(context.Context, *asynq.Task) error { return nil })
		defer s.Shutdown()
		task := asynqtest.Enqueue(t, m, asynq.NewTask("audit", nil))
		time.Sleep(11 * time.Second) // asynq's syncer goes to work every 5 s
		if got := w.scripts(task.ID); !slices.Equal(got, []string{"done", "done"}) {
			t.Errorf("asked about %v, want done, and once more after an error", got)
		}
		if info := asynqtest.Look(t, m, task); info == nil || info.State != asynq.TaskStateActive {
			t.Errorf("asynq has sent its own acknowledgement: %+v", info)
		}
	})
}

func TestAFetchTellsWhatATaskHasMet(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, _ := redistest.Virtual(t)
		c := redistest.Patient(t, m)
		w := &witness{answers: func(Acknowledgement) (bool, error) { return false, nil }}
		task := asynqtest.Enqueue(t, m, asynq.NewTask("audit", nil))
		m.HSet("asynq:{default}:t:"+task.ID, "railtoken:wait", "the record of a wait")
		message := m.HGet("asynq:{default}:t:"+task.ID, "msg")
		ran := make(chan string, 1)
		s := bareServer(t, New(c, Options{Queues: numbered(1), Tasks: w}), func(_ context.Context, task *asynq.Task) error {
			ran <- task.Type()
			return nil
		})
		defer s.Shutdown()
		if got := <-ran; got != "audit" {
			t.Errorf("a task of type %q ran", got)
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.fetched[0].Message != message {
			t.Errorf("its message is %q", w.fetched[0].Message)
		}
		w.fetched[0].Run, w.fetched[0].Message = "", ""
		if want := (Fetched{Queue: "default", ID: task.ID, Wait: "the record of a wait"}); w.fetched[0] != want {
			t.Errorf("%+v, want %+v", w.fetched[0], want)
		}
	})
}

func TestAPausedQueueIsNotFetchedFrom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, _ := redistest.Virtual(t)
		c := redistest.Patient(t, m)
		task := asynqtest.Enqueue(t, m, asynq.NewTask("audit", nil))
		if err := asynq.NewInspectorFromRedisClient(redistest.VirtualClient(t, m)).PauseQueue("default"); err != nil {
			t.Fatal(err)
		}
		w := &witness{answers: func(Acknowledgement) (bool, error) { return false, nil }}
		s := bareServer(t, New(c, Options{Queues: numbered(1), Tasks: w}),
			func(context.Context, *asynq.Task) error { return nil })
		time.Sleep(5 * time.Second)
		s.Shutdown()
		if info := asynqtest.Look(t, m, task); info == nil || info.State != asynq.TaskStatePending ||
			len(w.fetched) > 0 {
			t.Errorf("a task of a paused queue is %+v, fetched %v", info, w.fetched)
		}
	})
}

func TestNoRunBeginsHereWithAnotherAsynq(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	w := &witness{answers: func(Acknowledgement) (bool, error) { return false, nil }}
	sent := 0
	opts := Options{Queues: numbered(1), Tasks: w, Foreign: new(atomic.Bool), Plain: true, Logger: slog.New(slog.NewTextHandler(&log, nil))}
	for range 2 { // servers of a process
		c := New(&answers{look: func() error {
			sent++
			return nil
		}}, opts)
		c.EvalSha(t.Context(), "1234", []string{"asynq:{q}:active", "asynq:{q}:lease", "asynq:{q}:t:1"}, "1")
		// another one's, and one that it has in common with the version that is known
		for _, sum := range []string{"5678", dequeue} {
			c.EvalSha(t.Context(), sum, []string{
				"asynq:{q}:pending", "asynq:{q}:paused", "asynq:{q}:active",
				"asynq:{q}:lease",
			})
		}
	}
	if n := strings.Count(log.String(), "level=WARN"); sent != 6 || n != 1 || len(w.acks) != 2 || len(w.fetched) > 0 {
		t.Errorf("%d scripts were sent as they are, want 6, and %d warnings, want one; asked about the ends %v and the beginnings %v", sent, n, w.acks, w.fetched)
	}
}

func TestAnAcknowledgementWaitsForTheSlotOfItsQueue(t *testing.T) {
	t.Parallel()
	const moves = settleLimit - 2*time.Second
	for name, asked := range map[string]Tasks{
		"asynq's own": &witness{answers: func(Acknowledgement) (bool, error) {
			return false,
				nil
		}}, "nobody is asked": nil,
	} {
		synctest.Test(t, func(t *testing.T) {
			began, sent := time.Now(), 0
			c := New(&answers{look: func() error {
				sent++
				if time.Since(began) < moves {
					return errMoving
				}
				return nil
			}}, Options{Queues: numbered(1), Tasks: asked})
			keys := []string{"asynq:{q}:active", "asynq:{q}:lease", "asynq:{q}:t:1"}
			if err := c.EvalSha(t.Context(), done, keys, "1").Err(); err != nil || sent < 3 ||
				time.Since(began) > moves+time.Second {
				t.Errorf("%s: %v after %d attempts in %v", name, err, sent, time.Since(began))
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second) // asynq's lease
			defer cancel()
			began = time.Now().Add(time.Hour)
			if err := c.EvalSha(ctx, done, keys, "1").Err(); !errors.Is(err, errMoving) {
				t.Errorf("%s: %v, want that the slot moves", name, err)
			}
		})
	}
}

func TestAnAnswerWaitsForTheSlotToo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		replies := []error{errMoving, nil}
		w := &witness{answers: func(Acknowledgement) (bool, error) {
			err := replies[0]
			replies = replies[1:]
			return true, err
		}}
		c := New(&answers{}, Options{Queues: numbered(1), Tasks: w})
		err := c.EvalSha(t.Context(), done, []string{"asynq:{q}:active", "asynq:{q}:lease", "asynq:{q}:t:1"}, "1").Err()
		if err != nil || len(w.acks) != 2 {
			t.Errorf("%v after %d attempts, want two", err, len(w.acks))
		}
	})
}

var _ redis.UniversalClient = (*Conn)(nil)
