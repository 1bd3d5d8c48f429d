package intake

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

func numbered(n int) (tasks []Task) {
	for i := range n {
		tasks = append(tasks, Task{Queue: "q", ID: fmt.Sprint(i), Run: fmt.Sprint("run", i)})
	}
	return tasks
}

// restless has no task rest.
func restless(string, time.Time, bool) time.Duration { return 0 }

func TestNoMoreIsAskedForThanThereAreSlots(t *testing.T) {
	t.Parallel()
	s := newSlots(4)
	if _, n := s.ask(nil, 1, 0, -1); n != 4 {
		t.Fatalf("%d are asked for at first, want 4", n)
	}
	if _, n := s.ask(nil, 0, 0, -1); n != 0 {
		t.Errorf("%d are asked for while 4 are on their way", n)
	}
	s.answered(4, numbered(3), time.Now())
	if _, n := s.ask(nil, 0, 0, -1); n != 1 {
		t.Errorf("%d are asked for beside 3 in memory, want 1", n)
	}
	s.answered(1, nil, time.Time{})
	for range 3 {
		if _, ok, _ := s.take(restless); !ok {
			t.Fatal("a task is missing")
		}
	}
	if _, ok, _ := s.take(restless); ok {
		t.Error("there is a fourth task")
	}
	if run, ok := s.end(name{"q", "1"}); !ok || run != "run1" {
		t.Errorf("it ends %q, %v", run, ok)
	}
	if _, ok := s.end(name{"q", "1"}); ok {
		t.Error("it ends twice")
	}
	if _, n := s.ask(nil, 0, 0, -1); n != 2 {
		t.Errorf("%d are asked for beside 2 that run, want 2", n)
	}
}

// asynq sends no acknowledgement once its lease on a task has ended.
func TestARunTakesASlotUntilItsLeaseEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSlots(2)
		s.answered(0, numbered(2), time.Now())
		for range 2 {
			_, _, _ = s.take(restless)
		}
		for range 10 {
			time.Sleep(lease - time.Second)
			s.extend("q", []string{"1", "another's"}, time.Now())
		}
		if s.run(name{"q", "1"}) == "" || s.full() || s.run(name{"q", "0"}) != "" || len(s.running) != 1 {
			t.Errorf("asynq has %v, want 1 alone, whose lease it extends", s.running)
		}
		began := time.Now()
		time.Sleep(lease + 1)
		s.extend("q", []string{"1"}, began.Add(lease)) // too late
		if _, n := s.ask(nil, 0, 0, -1); n != 2 {
			t.Errorf("%d slots are free after the last lease has ended, want 2", n)
		}
		if !s.works(name{"q", "1"}) || s.works(name{"q", "2"}) {
			t.Error("asynq does not know yet that the lease has ended")
		}
		time.Sleep(learned + 1)
		if s.works(name{"q", "1"}) {
			t.Error("asynq has learned that the lease has ended")
		}
	})
}

func TestTasksInMemoryExpireInOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, began := newSlots(8), time.Now()
		for _, task := range numbered(4) {
			s.answered(0, []Task{task}, time.Now())
			time.Sleep(time.Second)
		}
		old, next := s.expired(began.Add(1500 * time.Millisecond))
		if len(old) != 2 || old[0].ID != "0" || !next.Equal(began.Add(2*time.Second)) {
			t.Errorf("%v are old, the next came at %v", old, next.Sub(began))
		}
		if task, ok, _ := s.take(restless); !ok || task.ID != "2" {
			t.Errorf("asynq gets %+v", task)
		}
	})
}

// An idle server with many slots would send as many orders of its queues with each fetch.
func TestOneCallAsksForSoManyTasks(t *testing.T) {
	t.Parallel()
	s := newSlots(1000)
	if _, n := s.ask(nil, 1, 0, -1); n != mostAsked {
		t.Errorf("a call asks for %d tasks, want %d", n, mostAsked)
	}
}

// Each call admits what the calls before it have brought, so as many are on their way as all calls under way end.
func TestTasksAreAskedForAheadOfTheirLocks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, askAhead)
}

func askAhead(t *testing.T) {
	s := newSlots(8)
	found := func(n int) []Task {
		tasks := numbered(n)
		for i := range tasks {
			tasks[i].found = true
		}
		return tasks
	}
	asks := func(what string, admits, n int) {
		t.Helper()
		if got, more := s.ask(nil, 0, 1, -1); len(got) != admits || more != n {
			t.Errorf("%s, %d are admitted and %d asked for, want %d and %d", what, len(got), more, admits, n)
		}
		s.admitted(admits)
		s.answered(admits+n, nil, time.Time{})
	}
	runs := func(d time.Duration) {
		t.Helper()
		task, ok, _ := s.take(restless)
		time.Sleep(d)
		if _, ended := s.end(name{task.Queue, task.ID}); !ok || !ended {
			t.Fatal("no task is in memory")
		}
	}
	if _, n := s.ask(nil, 1, 0, -1); n != 8 {
		t.Fatalf("%d are asked for at first, want 8", n)
	}
	s.answered(8, nil, time.Time{})
	s.wait(nil, found(8), time.Now())
	if all, n := s.ask(nil, 0, 1, -1); len(all) != 8 || n != 0 {
		t.Errorf("before a run, %d are admitted and %d asked for, want 8 and none", len(all), n)
	}
	s.wait(nil, found(2), time.Now())
	if again, _ := s.ask(nil, 0, 1, -1); len(again) != 0 {
		t.Errorf("%d are admitted while 8 are about to have all slots", len(again))
	}
	s.admitted(8)
	s.answered(8, found(4), time.Now()) // the others were parked
	runs(0)
	asks("after a brief run", 2, 3+8)
	s.wait(nil, found(1), time.Now())
	runs(brief)
	asks("after a long run", 1, 5)
	s.answered(0, found(1), time.Now())
	runs(brief - 1)
	asks("after one that was just brief enough", 0, 6+8)
	runs(0)
	s.answered(0, numbered(1), time.Now())
	asks("after a task that came with its locks", 0, 6)
}

// A fetch that asks for no more than has a slot hides no task from other servers. A task that was woken has a key that is free.
func TestATaskThatWaitsForItsLockKeepsItsSlot(t *testing.T) {
	t.Parallel()
	s := newSlots(1)
	s.ask(nil, 1, 0, -1)
	s.answered(1, nil, time.Time{})
	s.wait(nil, numbered(1), time.Now())
	woken := Task{Queue: "q", ID: "woken", Woken: true}
	s.wait(nil, []Task{woken}, time.Now())
	found, n := s.ask(nil, 1, 0, -1)
	if len(found) != 1 || found[0].ID != "woken" || n != 0 {
		t.Errorf("%+v get the slot, and %d are asked for, want the woken task and none", found, n)
	}
	if found, n = s.ask(nil, 1, 0, -1); len(found) != 0 || n != 0 {
		t.Errorf("%d get a slot and %d are asked for while another call is to fill it", len(found), n)
	}
}

// Tasks that were woken wait before those that came earlier, which must not wait for ever because of that.
func TestTheOldestGoesBackBehindAWokenTask(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSlots(1)
		s.wait(nil, numbered(1), time.Now())
		old := time.Now()
		time.Sleep(unclaimed)
		s.wait(nil, []Task{{Queue: "q", ID: "woken", Woken: true}}, time.Now())
		tasks, next := s.expired(old)
		if len(tasks) != 1 || tasks[0].ID != "0" || !next.Equal(time.Now()) {
			t.Errorf("%+v go back, and the next one came at %v, want the one that came first and %v", tasks, next, time.Now())
		}
	})
}

// The process was suspended: another server may have the task by now.
func TestAStaleTaskIsNotGivenToAsynq(t *testing.T) {
	t.Parallel()
	s := newSlots(2)
	s.answered(0, numbered(1), time.Now().Add(-stale-time.Second))
	if task, ok, _ := s.take(restless); ok {
		t.Errorf("asynq gets %+v", task)
	}
	if old, _ := s.expired(time.Now()); len(old) != 1 {
		t.Errorf("%d tasks go back, want 1", len(old))
	}
}

// Otherwise the pause of an idle server would end at once, and it would look in vain.
func TestATaskThatWasTakenEndsNoPause(t *testing.T) {
	t.Parallel()
	s := newSlots(4)
	s.answered(0, numbered(2), time.Now())
	_, _, _ = s.take(restless)
	if len(s.arrived) != 1 {
		t.Error("nothing tells of the second task")
	}
	_, _, _ = s.take(restless)
	if len(s.arrived) != 0 {
		t.Error("a task is announced that asynq has")
	}
	s.answered(0, numbered(1), time.Now())
	_, _ = s.expired(time.Now())
	if len(s.arrived) != 0 {
		t.Error("a task is announced that was put back")
	}
}

// A fetch that gets no slot waits for the calls that are about to fill it. If they bring nothing, it is made again.
func TestAFetchWithoutASlotHearsOfTheNextOne(t *testing.T) {
	t.Parallel()
	s := newSlots(2)
	if _, n := s.ask(nil, 0, 1, -1); n != 2 || s.starves() {
		t.Fatalf("%d slots were asked for, starves %v", n, s.starves())
	}
	if _, n := s.ask(nil, 0, 0, -1); n != 0 || !s.starves() {
		t.Fatalf("then %d, starves %v", n, s.starves())
	}
	s.answered(2, nil, time.Time{})
	select {
	case <-s.arrived:
	default:
		t.Error("nobody hears of the free slots")
	}
	if _, n := s.ask(nil, 0, 0, -1); n != 2 || s.starves() {
		t.Errorf("at last %d, starves %v", n, s.starves())
	}
}

// A task whose keys are found needs one call more: while runs are brief, tasks are taken for more slots than are free.
func TestTasksAreTakenAheadWhileKeysAreFound(t *testing.T) {
	t.Parallel()
	s := newSlots(4)
	s.brief = true
	if _, n := s.ask(nil, 0, 1, -1); n != 4 {
		t.Errorf("%d are asked for without keys to find, want 4", n)
	}
	s = newSlots(4)
	s.brief = true
	s.wait(nil, numbered(1), time.Now())
	if found, n := s.ask(nil, 0, 1, -1); len(found) != 1 || n != 7 {
		t.Errorf("%d get a slot and %d are asked for, want 1 and 7", len(found), n)
	}
}

func TestOnlyAnAnswerEndsThePauseOfAStarvedFetch(t *testing.T) {
	t.Parallel()
	s := newSlots(1)
	s.ask(nil, 0, 0, -1)
	if _, n := s.ask(nil, 0, 0, -1); n != 0 || !s.starves() {
		t.Fatalf("%d are asked for, starved %v", n, s.starves())
	}
	s.answered(0, nil, time.Time{})
	select {
	case <-s.arrived:
		t.Error("what answers for no slot ends the pause")
	default:
	}
	s.answered(1, nil, time.Time{})
	select {
	case <-s.arrived:
	default:
		t.Error("a slot that is free again does not end the pause")
	}
}

// asynq has asked in vain while another call had asked for all slots. That one takes fewer, and asynq may ask again.
func TestWhatACallLeavesEndsThePauseOfAFetch(t *testing.T) {
	t.Parallel()
	for name, starved := range map[string]bool{"starved": true, "not starved": false} {
		s := newSlots(2)
		if starved {
			s.ask(nil, 0, 1, -1)
			s.ask(nil, 0, 0, -1)
			s.answered(2, nil, time.Time{})
			<-s.arrived
		}
		if _, n := s.ask(nil, 0, 1, 1); n != 1 {
			t.Fatalf("%s: %d are asked for, want one at most", name, n)
		}
		if arrived := len(s.arrived) == 1; arrived != starved {
			t.Errorf("%s: the pause ends: %t", name, arrived)
		}
	}
}
