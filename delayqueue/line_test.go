package delayqueue_test

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

	"github.com/railtoken/railtoken/delayqueue"
)

// turn asks for a task's turn.
func (r *solo) turn(t delayqueue.Task, key string, opts delayqueue.TurnOptions) delayqueue.Turn {
	r.Helper()
	turn, err := r.queue.Turn(r.Context(), t, key, opts)
	if err != nil {
		r.Fatal(err)
	}
	return turn
}

// leaveLine takes a task out of line.
func (r *solo) leaveLine(t delayqueue.Task, key string) delayqueue.Left {
	r.Helper()
	left, err := r.queue.LeaveLine(r.Context(), t, key)
	if err != nil {
		r.Fatal(err)
	}
	return left
}

// front asks who is first.
func (r *solo) front(key string) delayqueue.Left {
	r.Helper()
	left, err := r.queue.Front(r.Context(), key)
	if err != nil {
		r.Fatal(err)
	}
	return left
}

// arrive lets tasks join the line one after another.
func (r *solo) arrive(key string, n int) []delayqueue.Task {
	r.Helper()
	var tasks []delayqueue.Task
	for i := range n {
		task := r.delayed(fmt.Sprintf("%s-%d", key, 97*i%n), asynq.Queue(fmt.Sprintf("q%d", i%3)))
		r.turn(task, key, delayqueue.TurnOptions{})
		tasks = append(tasks, task)
	}
	return tasks
}

func TestTasksTakeTheirTurnsInTheOrderInWhichTheyJoined(t *testing.T) {
	t.Parallel()
	r := newSolo(t)
	tasks := r.arrive("k", 20)
	for len(tasks) > 0 {
		for i, task := range tasks {
			turn := r.turn(task, "k", delayqueue.TurnOptions{})
			if turn.Ahead != i {
				t.Fatalf("%d stand before task %d", turn.Ahead, i)
			}
			if i > 0 && (turn.First != tasks[0] || turn.FirstState != "scheduled" || time.Until(turn.FirstAgain).Round(time.Minute) != time.Hour) {
				t.Fatalf("the first in line is %+v, want %s", turn, tasks[0])
			}
			if i == 0 && (turn.First != (delayqueue.Task{}) || turn.FirstState != "" || !turn.FirstAgain.IsZero() || turn.At.IsZero()) {
				t.Fatalf("the turn of the first is %+v", turn)
			}
		}
		left := r.leaveLine(tasks[0], "k")
		tasks = tasks[1:]
		if want := tasks[:min(2, len(tasks))]; !slices.Equal(left.Next, want) {
			t.Fatalf("next are %v, want %v", left.Next, want)
		}
	}
	if n := r.client.Exists(t.Context(), "railtoken:line:{k}").Val(); n != 0 {
		t.Error("an empty line leaves a key behind")
	}
}

func TestTheFirstIsDescribedInEveryState(t *testing.T) {
	t.Parallel()
	r := newSolo(t)
	running := make(chan struct{})
	r.serve(1, func(_ context.Context, _ string) error {
		running <- struct{}{}
		<-running
		return fmt.Errorf("refused")
	})
	info, err := r.tasks.Enqueue(asynq.NewTask("test", nil))
	if err != nil {
		t.Fatal(err)
	}
	first, other := delayqueue.Task{Queue: "default", ID: info.ID}, r.delayed("other")
	r.turn(first, "k", delayqueue.TurnOptions{})
	receive(t, running)
	if turn := r.turn(other, "k", delayqueue.TurnOptions{}); turn.FirstState != "active" || !turn.FirstAgain.IsZero() {
		t.Errorf("while it runs: %+v", turn)
	}
	close(running)
	r.become(first, asynq.TaskStateRetry)
	if turn := r.turn(other, "k", delayqueue.TurnOptions{}); turn.FirstState != "retry" || time.Until(turn.FirstAgain).Round(time.Minute) != time.Hour {
		t.Errorf("while it waits: %+v", turn)
	}
}

func TestNoTwoArrivalsHaveTheSamePlace(t *testing.T) {
	t.Parallel()
	r := newSolo(t)
	const n = 400
	places := make([]time.Time, n)
	var group sync.WaitGroup
	for worker := range 8 {
		group.Go(func() {
			for i := worker; i < n; i += 8 {
				turn, err := r.queue.Turn(t.Context(), r.delayed(fmt.Sprint(i)), "k", delayqueue.TurnOptions{})
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
func TestAnArrivalIsBehindEverybodyWhateverTheClockSays(t *testing.T) {
	t.Parallel()
	r := newSolo(t)
	ahead := time.Now().Add(time.Hour).Truncate(time.Microsecond)
	a, b, c := r.delayed("a"), r.delayed("b"), r.delayed("c")
	r.turn(a, "k", delayqueue.TurnOptions{At: ahead})
	if turn := r.turn(b, "k", delayqueue.TurnOptions{}); turn.Ahead != 1 || !turn.At.Equal(ahead.Add(time.Microsecond)) {
		t.Errorf("the second stands at %+v", turn)
	}
	if turn := r.turn(c, "k", delayqueue.TurnOptions{}); turn.Ahead != 2 || !turn.At.Equal(ahead.Add(2*time.Microsecond)) {
		t.Errorf("the third stands at %+v", turn)
	}
}

func TestATaskThatComesBackTakesItsFormerPlace(t *testing.T) {
	t.Parallel()
	r := newSolo(t)
	tasks := r.arrive("k", 3)
	at := r.turn(tasks[1], "k", delayqueue.TurnOptions{}).At
	r.leaveLine(tasks[1], "k")
	if turn := r.turn(tasks[1], "k", delayqueue.TurnOptions{At: at}); turn.Ahead != 1 || !turn.At.Equal(at) {
		t.Errorf("it stands at %+v, want one before it", turn)
	}
	if turn := r.turn(tasks[2], "k", delayqueue.TurnOptions{At: at.Add(-time.Hour)}); turn.Ahead != 2 {
		t.Errorf("one that is in line went to another place: %+v", turn)
	}
}

// gone lets a task end in one of the ways that leave its entry behind.
func (r *solo) gone(i int, t delayqueue.Task) {
	r.Helper()
	var err error
	switch i % 3 {
	case 0:
		err = r.inspect.DeleteTask(t.Queue, t.ID)
	case 1:
		err = r.inspect.ArchiveTask(t.Queue, t.ID)
	default: // as asynq's own script does it when a task with Retention has run
		err = r.client.HSet(r.Context(), "asynq:{"+t.Queue+"}:t:"+t.ID, "state", "completed").Err()
	}
	if err != nil {
		r.Fatal(err)
	}
}

func TestTasksThatAreGoneDoNotHoldUpTheLine(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 2, 3, 100, 101, 230} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			r := newSolo(t)
			tasks := r.arrive("k", n+2)
			for i, task := range tasks[:n] {
				r.gone(i, task)
			}
			var calls atomic.Int32
			r.client.AddHook(counting{&calls})
			if turn := r.turn(tasks[n+1], "k", delayqueue.TurnOptions{}); turn.Ahead != 1 || turn.First != tasks[n] {
				t.Errorf("the last stands at %+v, want %s before it", turn, tasks[n])
			}
			if most := int32(4 + 2*((n+99)/100)); calls.Load() > most {
				t.Errorf("%d calls to find that %d are gone, want %d at most", calls.Load(), n, most)
			}
			if turn := r.turn(tasks[n], "k", delayqueue.TurnOptions{}); turn.Ahead != 0 {
				t.Errorf("the first live one stands at %+v", turn)
			}
			if got := r.client.ZCard(t.Context(), "railtoken:line:{k}").Val(); got != 2 {
				t.Errorf("%d are in line, want the 2 live ones", got)
			}
		})
	}
}

func TestWhoLeavesIsToldOfLiveTasks(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 2, 3, 230} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			r := newSolo(t)
			tasks := r.arrive("k", n+4) // first, n that are gone, live, one that is gone, live
			for i, task := range tasks[1 : n+1] {
				r.gone(i, task)
			}
			r.gone(0, tasks[n+2])
			r.park(tasks[n+1], "k")
			r.park(tasks[n+3], "k")
			left := r.leaveLine(tasks[0], "k")
			if want := []delayqueue.Task{tasks[n+1], tasks[n+3]}; !slices.Equal(left.Next, want) || left.Parked != 2 {
				t.Errorf("left %+v, want %v and 2 parked", left, want)
			}
			if left := r.leaveLine(tasks[n+1], "k"); !slices.Equal(left.Next, []delayqueue.Task{tasks[n+1], tasks[n+3]}) {
				t.Errorf("a run that was given up has left %+v, want its task, which waits in another one, to be the first", left)
			}
			r.turn(tasks[n+1], "k", delayqueue.TurnOptions{Begins: true})
			if left := r.leaveLine(tasks[n+1], "k"); !slices.Equal(left.Next, tasks[n+3:]) {
				t.Errorf("left %+v, want %v", left, tasks[n+3:])
			}
			r.gone(n, tasks[n+3])
			if left := r.leaveLine(delayqueue.Task{Queue: "q", ID: "never in line"}, "k"); len(left.Next) != 0 {
				t.Errorf("left %+v, want nobody", left)
			}
			if got := r.client.Exists(t.Context(), "railtoken:line:{k}").Val(); got != 0 {
				t.Error("the line is still there")
			}
		})
	}
}

func TestTheFrontOfALineIsThatOfItsLiveTasks(t *testing.T) {
	t.Parallel()
	r := newSolo(t)
	if left := r.front("k"); len(left.Next) != 0 || left.Parked != 0 {
		t.Errorf("the front of no line is %+v", left)
	}
	tasks := r.arrive("k", 5)
	r.park(tasks[3], "k")
	r.gone(0, tasks[0])
	r.gone(1, tasks[2])
	for range 2 {
		if left := r.front("k"); !slices.Equal(left.Next, []delayqueue.Task{tasks[1], tasks[3]}) || left.Parked != 1 {
			t.Errorf("the front is %+v, want %v and one that is parked", left, []delayqueue.Task{tasks[1], tasks[3]})
		}
	}
	if got := r.line("k"); len(got) != 3 {
		t.Errorf("in line are %v, want the three live ones", got)
	}
}

// A task that was parked may have come back by its own timer: then nobody has taken it out of those that wait.
func TestWhoLeavesTheLineWaitsNoLonger(t *testing.T) {
	t.Parallel()
	r := newSolo(t)
	tasks := r.arrive("k", 4)
	for _, task := range tasks {
		r.park(task, "k")
	}
	r.gone(0, tasks[1])
	for _, task := range []delayqueue.Task{tasks[0], tasks[2], tasks[3]} {
		left := r.leaveLine(task, "k")
		if left.Next[0] != tasks[0] {
			t.Fatalf("left %+v: a task that is parked has left, and it is the run of another that ended", left)
		}
	}
	begin := func(task delayqueue.Task) { r.turn(task, "k", delayqueue.TurnOptions{Begins: true}) }
	begin(tasks[0])
	left := r.leaveLine(tasks[0], "k")
	if want := tasks[2:]; !slices.Equal(left.Next, want) || left.Parked != 2 {
		t.Errorf("left %+v, want %v and 2 parked", left, want)
	}
	for _, task := range tasks[:2] {
		if n := r.client.ZScore(t.Context(), delayqueue.ParkedIndex, entry(task)); n.Err() == nil {
			t.Errorf("%s still counts among the parked tasks", task)
		}
	}
	if got := r.client.ZCard(t.Context(), delayqueue.ParkedIndex).Val(); got != 2 {
		t.Errorf("%d tasks count as parked, want the 2 that are", got)
	}
	begin(tasks[2])
	if left := r.leaveLine(tasks[2], "k"); left.Parked != 1 {
		t.Errorf("left %+v, want 1 parked", left)
	}
	begin(tasks[3])
	if left := r.leaveLine(tasks[3], "k"); left.Parked != 0 || len(r.waiting("k")) != 0 {
		t.Errorf("left %+v and %v wait, want nobody", left, r.waiting("k"))
	}
}

func TestALineIsForgottenWhenNobodyAsksForItAnyMore(t *testing.T) {
	t.Parallel()
	r := newSolo(t)
	a, b := r.delayed("a"), r.delayed("b")
	for _, step := range []struct {
		task       delayqueue.Task
		keep, want time.Duration
	}{
		{a, time.Hour, time.Hour},
		{a, time.Minute, time.Hour},
		{b, 0, 48 * time.Hour},
		{b, time.Hour, 48 * time.Hour},
		{b, 100 * time.Hour, 100 * time.Hour},
		{a, time.Nanosecond, 100 * time.Hour},
	} {
		r.turn(step.task, "k", delayqueue.TurnOptions{Keep: step.keep})
		if ttl := r.client.TTL(t.Context(), "railtoken:line:{k}").Val(); ttl.Round(time.Minute) != step.want {
			t.Errorf("after a turn with Keep %v it is kept for %v, want %v", step.keep, ttl, step.want)
		}
	}
}

func TestLinesOfDifferentKeysAreApart(t *testing.T) {
	t.Parallel()
	r := newSolo(t)
	task := r.delayed("a")
	for i, key := range []string{"", "%", "{", "}", "k", "k ", "\xff", "{k}"} {
		if turn := r.turn(task, key, delayqueue.TurnOptions{}); turn.Ahead != 0 {
			t.Errorf("the line of %q is that of another key", key)
		}
		r.turn(r.delayed(fmt.Sprintf("behind%d", i)), key, delayqueue.TurnOptions{})
	}
}

func TestATurnCostsOneCallWhenNobodyIsAhead(t *testing.T) {
	t.Parallel()
	r := newSolo(t)
	a, b := r.delayed("a"), r.delayed("b")
	r.turn(a, "warm", delayqueue.TurnOptions{})
	r.leaveLine(a, "warm")
	var calls atomic.Int32
	r.client.AddHook(counting{&calls})
	for _, step := range []struct {
		what string
		do   func()
		want int32
	}{
		{"the turn of the first", func() { r.turn(a, "k", delayqueue.TurnOptions{}) }, 1},
		{"the turn of the second", func() { r.turn(b, "k", delayqueue.TurnOptions{}) }, 2},
		{"a look at the front", func() { r.front("k") }, 2},
		{"leaving", func() { r.leaveLine(a, "k") }, 2},
		{"leaving as the last", func() { r.leaveLine(b, "k") }, 1},
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
func TestWhatIsNoEntryOfALineIsPassedOver(t *testing.T) {
	t.Parallel()
	r := newSolo(t)
	for i, foreign := range []string{"", "x", "3:", "99:short", "-1:x"} {
		if err := r.client.ZAdd(t.Context(), "railtoken:line:{k}", redis.Z{Score: float64(i), Member: foreign}).Err(); err != nil {
			t.Fatal(err)
		}
	}
	task := r.delayed("a")
	turn, err := r.queue.Turn(t.Context(), task, "k", delayqueue.TurnOptions{})
	if err != nil || turn.Ahead != 0 {
		t.Errorf("turn %+v, %v; want that of the only task", turn, err)
	}
}
