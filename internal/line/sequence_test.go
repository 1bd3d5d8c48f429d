package line_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/line"
)

// turn asks for a task's turn.
func (r *solo) turn(t line.Task, key string, opts line.JoinOptions) line.Position {
	r.Helper()
	turn, err := r.Engine.Join(r.Context(), t, key, opts)
	if err != nil {
		r.Fatal(err)
	}
	return turn
}

// remove takes a task out of line.
func (r *solo) remove(t line.Task, key string) line.Front {
	r.Helper()
	left, err := r.Engine.Remove(r.Context(), t, key)
	if err != nil {
		r.Fatal(err)
	}
	return left
}

// front asks who is first.
func (r *solo) front(key string) line.Front {
	r.Helper()
	left, err := r.Engine.Front(r.Context(), key)
	if err != nil {
		r.Fatal(err)
	}
	return left
}

// refusedOnce notes of a task what its first conflict does, whose deadline is then known.
func (r *solo) refusedOnce(t line.Task) {
	r.Helper()
	if err := r.Client.HSet(r.Context(), hash(t), line.WaitField, line.Wait{}.String()).Err(); err != nil {
		r.Fatal(err)
	}
}

// arrive lets tasks join the line one after another.
func (r *solo) arrive(key string, n int) []line.Task {
	r.Helper()
	var tasks []line.Task
	for i := range n {
		task := r.Delayed(fmt.Sprintf("%s-%d", key, 97*i%n), asynq.Queue(fmt.Sprintf("q%d", i%3)))
		r.turn(task, key, line.JoinOptions{})
		r.refusedOnce(task)
		tasks = append(tasks, task)
	}
	return tasks
}

func TestTasksRunInTheOrderInWhichTheyJoined(t *testing.T) {
	t.Parallel()
	r := newSolo(t)
	tasks := r.arrive("k", 20)
	for len(tasks) > 0 {
		for i, task := range tasks {
			turn := r.turn(task, "k", line.JoinOptions{})
			if turn.Ahead != i {
				t.Fatalf("%d stand before task %d", turn.Ahead, i)
			}
			if i > 0 && (turn.First != tasks[0] || turn.FirstState != "scheduled" ||
				time.Until(turn.FirstAgain).Round(time.Minute) != time.Hour) {
				t.Fatalf("the first in line is %+v, want %s", turn, tasks[0])
			}
			if i == 0 && (turn.First != (line.Task{}) || turn.FirstState != "" || !turn.FirstAgain.IsZero() ||
				turn.At.IsZero()) {
				t.Fatalf("the turn of the first is %+v", turn)
			}
		}
		left := r.remove(tasks[0], "k")
		tasks = tasks[1:]
		if want := tasks[:min(2, len(tasks))]; !slices.Equal(left.Next, want) {
			t.Fatalf("next are %v, want %v", left.Next, want)
		}
	}
	if n := r.Client.Exists(t.Context(), "railtoken:sequence:{k}").Val(); n != 0 {
		t.Error("an empty line leaves a key behind")
	}
}

func TestTheFirstIsDescribedInEveryState(t *testing.T) {
	t.Parallel()
	r := newSolo(t)
	running := make(chan struct{})
	r.Serve(1, func(_ context.Context, _ string) error {
		running <- struct{}{}
		<-running
		return fmt.Errorf("refused")
	})
	info, err := r.Tasks.Enqueue(asynq.NewTask("test", nil))
	if err != nil {
		t.Fatal(err)
	}
	first, other := line.Task{Queue: "default", ID: info.ID}, r.Delayed("other")
	r.turn(first, "k", line.JoinOptions{Strict: true})
	receive(t, running)
	if turn := r.turn(other, "k", line.JoinOptions{}); turn.FirstState != "active" || !turn.FirstAgain.IsZero() {
		t.Errorf("while it runs: %+v", turn)
	}
	close(running)
	r.Become(first, asynq.TaskStateRetry)
	if turn := r.turn(other, "k", line.JoinOptions{}); turn.FirstState != "retry" ||
		time.Until(turn.FirstAgain).Round(time.Minute) != time.Hour {
		t.Errorf("while it waits: %+v", turn)
	}
}

func TestNoTwoArrivalsHaveTheSamePosition(t *testing.T) {
	t.Parallel()
	r := newSolo(t)
	const n = 400
	places := make([]time.Time, n)
	var group sync.WaitGroup
	for worker := range 8 {
		group.Go(func() {
			for i := worker; i < n; i += 8 {
				turn, err := r.Engine.Join(t.Context(), r.Delayed(fmt.Sprint(i)), "k", line.JoinOptions{})
				if err != nil {
					t.Error(err)
					return
				}
				places[i] = turn.At
			}
		})
	}
	group.Wait()
	slices.SortFunc(places, time.Time.Compare)
	if distinct := len(slices.CompactFunc(places, time.Time.Equal)); distinct != n {
		t.Errorf("%d arrivals have %d places", n, distinct)
	}
}

// After a failover the clock of the new master may be behind.
func TestAnArrivalIsLastWhateverTheClockSays(t *testing.T) {
	t.Parallel()
	r := newSolo(t)
	ahead := time.Now().Add(time.Hour).Truncate(time.Microsecond)
	a, b, c := r.Delayed("a"), r.Delayed("b"), r.Delayed("c")
	r.turn(a, "k", line.JoinOptions{At: ahead})
	if turn := r.turn(b, "k", line.JoinOptions{}); turn.Ahead != 1 || !turn.At.Equal(ahead.Add(time.Microsecond)) {
		t.Errorf("the second stands at %+v", turn)
	}
	if turn := r.turn(c, "k", line.JoinOptions{}); turn.Ahead != 2 || !turn.At.Equal(ahead.Add(2*time.Microsecond)) {
		t.Errorf("the third stands at %+v", turn)
	}
}

func TestATaskThatComesBackTakesItsFormerPosition(t *testing.T) {
	t.Parallel()
	r := newSolo(t)
	tasks := r.arrive("k", 3)
	at := r.turn(tasks[1], "k", line.JoinOptions{}).At
	r.remove(tasks[1], "k")
	if turn := r.turn(tasks[1], "k", line.JoinOptions{At: at}); turn.Ahead != 1 || !turn.At.Equal(at) {
		t.Errorf("it stands at %+v, want one before it", turn)
	}
	if turn := r.turn(tasks[2], "k", line.JoinOptions{At: at.Add(-time.Hour)}); turn.Ahead != 2 {
		t.Errorf("one that is in line went to another place: %+v", turn)
	}
}

func TestASequenceLivesAsLongAsItsTasks(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		a, b, name := r.Delayed("a"), r.Delayed("b"), line.Names{}.Sequence(r.key("k"))
		r.joins(a, "k", 1)
		if err := r.Client.PExpire(t.Context(), name, time.Hour).Err(); err != nil { // as earlier versions did
			t.Fatal(err)
		}
		for _, task := range []line.Task{b, a} {
			r.joins(task, "k", 2)
			if ttl := r.Client.TTL(t.Context(), name).Val(); ttl >= 0 {
				t.Errorf("after a task has joined the sequence ends in %v", ttl)
			}
		}
	})
}

func TestSequencesOfDifferentKeysAreApart(t *testing.T) {
	t.Parallel()
	r := newSolo(t)
	task := r.Delayed("a")
	for i, key := range []string{"", "%", "{", "}", "k", "k ", "\xff", "{k}"} {
		if turn := r.turn(task, key, line.JoinOptions{}); turn.Ahead != 0 {
			t.Errorf("the line of %q is that of another key", key)
		}
		r.turn(r.Delayed(fmt.Sprintf("behind%d", i)), key, line.JoinOptions{})
	}
}

func TestJoinCostsOneCallWhenNoTaskIsAhead(t *testing.T) {
	t.Parallel()
	r := newSolo(t)
	a, b := r.Delayed("a"), r.Delayed("b")
	r.refusedOnce(a)
	r.refusedOnce(b)
	for _, task := range []line.Task{a, b} {
		r.turn(task, "warm", line.JoinOptions{})
		r.refusedOnce(task)
	}
	r.remove(b, "warm")
	r.remove(a, "warm")
	var calls atomic.Int32
	r.Client.AddHook(counting{&calls})
	for _, step := range []struct {
		what string
		do   func()
		want int32
	}{
		{"the turn of the first", func() { r.turn(a, "k", line.JoinOptions{}) }, 1},
		{"the turn of the second", func() { r.turn(b, "k", line.JoinOptions{}) }, 2},
		{"a look at the front", func() { r.front("k") }, 2},
		{"leaving", func() { r.remove(a, "k") }, 2},
		{"leaving as the last", func() { r.remove(b, "k") }, 1},
	} {
		calls.Store(0)
		step.do()
		if calls.Load() != step.want {
			t.Errorf("%s costs %d calls, want %d", step.what, calls.Load(), step.want)
		}
	}
}

// counting counts round trips, but not those of a new connection.
type counting struct{ n *atomic.Int32 }

func (counting) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c counting) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() != "hello" {
			c.n.Add(1)
		}
		return next(ctx, cmd)
	}
}

func (c counting) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if cmds[0].Name() != "client" {
			c.n.Add(1)
		}
		return next(ctx, cmds)
	}
}

// Whatever else is found in a line, it holds up nobody.
func TestForeignMembersOfASequenceAreSkipped(t *testing.T) {
	t.Parallel()
	r := newSolo(t)
	for i, foreign := range []string{"", "x", "3:", "99:short", "-1:x"} {
		if err := r.Client.ZAdd(t.Context(), "railtoken:sequence:{k}",
			redis.Z{Score: float64(i), Member: foreign}).Err(); err != nil {
			t.Fatal(err)
		}
	}
	task := r.Delayed("a")
	turn, err := r.Engine.Join(t.Context(), task, "k", line.JoinOptions{})
	if err != nil || turn.Ahead != 0 {
		t.Errorf("turn %+v, %v; want that of the only task", turn, err)
	}
}

// The timer of a parked task has brought it back, and its run joins again.
func TestATaskIsNotParkedOnceItsRunHasJoined(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		first, task := r.begun("first"), r.Delayed("a")
		r.joins(first, "k", 1)
		r.joins(task, "k", 2)
		r.Park(task, "k")
		r.timer(task)
		r.Begin(task)
		for range 2 {
			at, err := r.Engine.Join(t.Context(), task, r.key("k"), line.JoinOptions{Begins: true})
			if err != nil || at.Ahead != 1 || at.First != first {
				t.Errorf("%+v, %v", at, err)
			}
			if len(r.Waiting("k"))+len(r.parked()) != 0 {
				t.Errorf("%q wait, and parked are %q", r.Waiting("k"), r.parked())
			}
		}
	})
}
