package intake

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/colocated"
	"github.com/railtoken/railtoken/internal/testing/redistest"
)

type replyError string

func (e replyError) Error() string { return string(e) }
func (replyError) RedisError()     {}

// What Redis has answered is known, and what it refuses for the moment is tried again.
func TestACallIsRepeatedUntilItsOutcomeIsKnown(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		err                error
		unanswered, passes bool
	}{
		{nil, false, false},
		{redis.Nil, false, false},
		{redis.ErrClosed, false, false},
		{errReply, false, false},
		{replyError("READONLY You can't write against a read only replica."), false, true},
		{replyError("NOPERM no permissions"), false, false},
		{errors.New("connection reset by peer"), true, true},
		{context.DeadlineExceeded, true, true},
	} {
		if unanswered(tc.err) != tc.unanswered || passes(tc.err) != tc.passes {
			t.Errorf("%v: it is unanswered: %v, and passes: %v", tc.err, unanswered(tc.err), passes(tc.err))
		}
	}
	if end := leaseEnd(time.Unix(100, 0)); end != 130 {
		t.Errorf("a lease from 100 ends at %d", end)
	}
	for value, want := range map[any]time.Duration{"1500": 1500 * time.Microsecond, "": 0, "x": 0} {
		if woken, ago := wokenFor(value); !woken || ago != want {
			t.Errorf("%q: woken %v, %v ago", value, woken, ago)
		}
	}
	if woken, ago := wokenFor(nil); woken || ago != 0 {
		t.Errorf("woken %v, %v ago", woken, ago)
	}
}

// underWay returns how many calls are.
func (in *Intake) underWay() int {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.calls
}

// A repetition ends with its first success. One that cannot begin any more, or goes on for too long, is given up.
func TestARepetitionEndsWithItsSuccess(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		in := New(redis.NewClient(&redis.Options{Addr: "127.0.0.1:6379"}), Options{Slots: 1}) // nothing is dialed
		defer func() { _ = in.client.Close() }()
		began := time.Now()
		var calls, gaveUp atomic.Int32
		failure := errors.New("away")
		if !in.repeat(func(context.Context) error {
			calls.Add(1)
			if time.Since(began) < 50*time.Minute {
				return failure
			}
			return nil
		}, func() { gaveUp.Add(1) }) {
			t.Error("it has not begun")
		}
		time.Sleep(30 * time.Minute)
		if in.underWay() != 1 || gaveUp.Load() != 0 {
			t.Errorf("%d calls are under way, and it was given up %d times", in.underWay(), gaveUp.Load())
		}
		time.Sleep(21 * time.Minute)
		synctest.Wait()
		if in.underWay() != 0 || gaveUp.Load() != 0 || calls.Load() < 1500 { // each second, or half as often at least
			t.Errorf("after %d calls %d are under way, and it was given up %d times", calls.Load(), in.underWay(), gaveUp.Load())
		}
		in.repeat(func(context.Context) error { return failure }, func() { gaveUp.Add(1) })
		time.Sleep(repeatLimit + time.Minute)
		if in.underWay() != 0 || gaveUp.Load() != 1 {
			t.Errorf("after more than an hour %d calls are under way, and it was given up %d times", in.underWay(), gaveUp.Load())
		}
		in.spawn = func(time.Duration, func(context.Context)) bool { return false }
		if in.repeat(func(context.Context) error { return nil }, func() { gaveUp.Add(1) }) || gaveUp.Load() != 2 || in.underWay() != 0 {
			t.Errorf("it has begun in a process that ends; %d calls are under way, and it was given up %d times", in.underWay(), gaveUp.Load())
		}
	})
}

// A drain waits for the calls under way, and no call begins after it.
func TestNoCallBeginsAfterADrain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		in := New(redis.NewClient(&redis.Options{Addr: "127.0.0.1:6379"}), Options{Slots: 1}) // nothing is dialed
		defer func() { _ = in.client.Close() }()
		for range 2 {
			if !in.begin(false) {
				t.Fatal("no call begins")
			}
		}
		began, drained := time.Now(), make(chan struct{})
		go func() {
			defer close(drained)
			in.Drain(t.Context())
		}()
		time.Sleep(time.Second)
		if in.begin(false) || !in.begin(true) || !in.isStopping() {
			t.Error("a call begins during a drain, or one that must cannot")
		}
		in.end()
		in.end()
		time.Sleep(time.Second)
		in.end()
		<-drained
		if took := time.Since(began); took != 2*time.Second {
			t.Errorf("the drain has taken %v, want until the last call ends", took)
		}
		if _, err := in.Fetch(t.Context(), "default"); !errors.Is(err, redis.Nil) {
			t.Errorf("a fetch is answered with %v", err)
		}
	})
}

// releasing counts what becomes of a release.
func releasing(sends *int, outcomes *[]colocated.Outcome) *colocated.Release {
	r := colocated.NewRelease(nil, "me", nil, func(_ context.Context, sent bool) (colocated.Outcome, error) {
		if sent {
			*sends++
		}
		return colocated.Outcome{}, nil
	})
	r.Then(func(o colocated.Outcome, _ error) { *outcomes = append(*outcomes, o) })
	return r
}

func TestAnAcknowledgementTellsItsRelease(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		err      error
		repeated bool
		sends    int
		want     colocated.Outcome
	}{
		"it is answered":      {want: colocated.Outcome{Scripted: true, Lost: 2}},
		"it was sent again":   {repeated: true, want: colocated.Outcome{Scripted: true}},
		"it has failed":       {err: errors.New("READONLY"), sends: 1},
		"it has failed again": {err: errors.New("READONLY"), repeated: true, sends: 1},
	} {
		var sends int
		var outcomes []colocated.Outcome
		acknowledged{Outcome: colocated.Outcome{Lost: 2}}.release(t.Context(), releasing(&sends, &outcomes), tc.err, tc.repeated)
		if sends != tc.sends || len(outcomes) != 1 || outcomes[0].Scripted != tc.want.Scripted || outcomes[0].Lost != tc.want.Lost {
			t.Errorf("%s: it is sent %d times, with %+v", name, sends, outcomes)
		}
	}
	acknowledged{}.release(t.Context(), nil, nil, false)
}

// An acknowledgement of a run that this Intake does not know is the caller's. One that it has sent holds up no drain.
func TestAnAcknowledgementIsOfARunHere(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, admin := redistest.Virtual(t)
		in := New(redistest.Patient(t, m), Options{Queues: map[string]int{"default": 1}, Slots: 1})
		for _, known := range []bool{false, true} {
			admin.HSet(t.Context(), "asynq:{default}:t:a", "state", "active", "pending_since", "run")
			admin.LPush(t.Context(), "asynq:{default}:active", "a")
			if known {
				in.slots.running[name{"default", "a"}] = running{run: "run", until: time.Now().Add(lease)}
			}
			sum := "asynq:{default}:processed"
			ok, err := in.Acknowledge(t.Context(), Acknowledgement{
				Queue: "default", ID: "a", Done: true,
				Keys: []string{"asynq:{default}:active", "asynq:{default}:lease", "asynq:{default}:t:a", sum + ":2000-01-01", sum}, Args: []any{"a", 1, 1},
			})
			if ok != known || err != nil || in.underWay() != 0 {
				t.Errorf("known: %v; it is sent: %v, %v, and %d calls are under way", known, ok, err, in.underWay())
			}
		}
	})
}

// A fetch with an acknowledgement asks for no more tasks than there are slots.
func TestAnAcknowledgementTakesNoTaskWithoutASlot(t *testing.T) {
	t.Parallel()
	in := New(redis.NewClient(&redis.Options{Addr: "127.0.0.1:6379"}), Options{Queues: map[string]int{"default": 1}, Slots: 2}) // nothing is dialed
	defer func() { _ = in.client.Close() }()
	for i, id := range []string{"a", "b"} {
		in.slots.running[name{"default", id}] = running{run: "run", until: time.Now().Add(lease)}
		in.place("default").fetchWithAcks(1)
		if want := 1 - i; in.slots.asked != want {
			t.Errorf("beside %d runs %d tasks are asked for, want %d", i+1, in.slots.asked, want)
		}
		in.slots.asked = 0
	}
}

// asynq asks for no other task while it has as many as it can run.
func TestALostFetchIsRecalledWithoutAnother(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, admin := redistest.Virtual(t)
		client := redistest.Patient(t, m)
		admin.HSet(t.Context(), "asynq:{default}:t:a", "state", "pending", "msg", "m")
		admin.LPush(t.Context(), "asynq:{default}:pending", "a")
		began := time.Now()
		client.AddHook(redistest.Hook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
			err := next(ctx, cmd)
			if strings.HasPrefix(cmd.Name(), "eval") && time.Since(began) < time.Second {
				return redistest.Fail(cmd, errors.New("connection reset by peer"))
			}
			return err
		}))
		in := New(client, Options{Queues: map[string]int{"default": 1}, Slots: 1})
		if _, err := in.Fetch(t.Context(), "default"); err == nil {
			t.Fatal("the fetch is answered")
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if active, pending := admin.LLen(t.Context(), "asynq:{default}:active").Val(), admin.LLen(t.Context(), "asynq:{default}:pending").Val(); active != 0 || pending != 1 {
			t.Errorf("%d tasks are active, and %d pending", active, pending)
		}
	})
}

func TestASlotThatIsKeptIsNotGivenBack(t *testing.T) {
	t.Parallel()
	s := newSlots(4)
	if _, n := s.ask(nil, 1, 0, -1); n != 4 || s.keep(n, 1) != 1 || s.asked != 1 {
		t.Errorf("of %d slots %d are asked for", n, s.asked)
	}
	if s.keep(1, 1) != 1 || s.keep(1, 2) != 2 || s.asked != 1 {
		t.Errorf("%d are asked for", s.asked)
	}
	s.admit(1)
	if s.asked != 0 || s.admitting != 1 {
		t.Errorf("%d are asked for, and %d are admitted", s.asked, s.admitting)
	}
	s.admitted(1)
	if s.asked != 1 || s.admitting != 0 {
		t.Errorf("%d are asked for, and %d are admitted", s.asked, s.admitting)
	}
}

// A task whose handler has not returned here goes back after a tenth of a second, and is pending again.
func TestATaskWhoseHandlerStillRunsGoesBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, admin := redistest.Virtual(t)
		in := New(redistest.Patient(t, m), Options{Slots: 3})
		for _, id := range []string{"a", "b"} {
			admin.HSet(t.Context(), "asynq:{default}:t:"+id, "state", "active", "pending_since", "run of "+id)
			admin.LPush(t.Context(), "asynq:{default}:active", id)
			admin.ZAdd(t.Context(), "asynq:{default}:lease", redis.Z{Member: id, Score: float64(time.Now().Add(lease).Unix())})
		}
		in.slots.running[name{"default", "a"}] = running{run: "before", until: time.Now().Add(lease)}
		others := in.yield([]Task{{Queue: "default", ID: "a", Run: "run of a"}, {Queue: "default", ID: "b", Run: "run of b"}})
		if len(others) != 1 || others[0].ID != "b" || in.underWay() != 1 {
			t.Errorf("left are %v, and %d calls are under way", others, in.underWay())
		}
		time.Sleep(100*time.Millisecond - 1)
		synctest.Wait()
		if n := admin.LLen(t.Context(), "asynq:{default}:pending").Val(); n != 0 {
			t.Errorf("%d tasks are pending too early", n)
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if got := admin.LRange(t.Context(), "asynq:{default}:pending", 0, -1).Val(); !slices.Equal(got, []string{"a"}) || in.underWay() != 0 {
			t.Errorf("pending are %v, and %d calls are under way", got, in.underWay())
		}
	})
}

// lockers are Tasks whose locks are elsewhere: each has an answer at once.
type lockers struct{ leaves }

func (lockers) Lock(all []Task, locked func(Task)) []Task {
	for _, t := range all {
		go locked(t)
	}
	return nil
}

// The process was suspended while the keys of a task were locked: asynq may have recovered the task.
func TestATaskWhoseLocksCameTooLateGoesBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, admin := redistest.Virtual(t)
		in := New(redistest.Patient(t, m), Options{Slots: 2, Tasks: lockers{}})
		for _, late := range []bool{false, true} {
			admin.Del(t.Context(), "asynq:{default}:pending")
			admin.HSet(t.Context(), "asynq:{default}:t:a", "state", "active", "pending_since", "run")
			admin.LPush(t.Context(), "asynq:{default}:active", "a")
			leased := time.Now().Add(-stale)
			if late {
				leased = leased.Add(-1)
			}
			in.slots.asked = 1
			if others, n := in.lock([]Task{{Queue: "default", ID: "a", Run: "run"}}, leased); len(others) != 0 || n != 1 {
				t.Errorf("%v are others, and %d wait for their locks", others, n)
			}
			synctest.Wait()
			back := admin.LLen(t.Context(), "asynq:{default}:pending").Val() == 1
			if back != late || (len(in.slots.ready) == 0) != late || in.slots.asked != 0 || in.slots.admitting != 0 || in.underWay() != 0 {
				t.Errorf("late: %v; the task goes back: %v, in memory are %v, and %d are asked for", late, back, in.slots.ready, in.slots.asked)
			}
			in.slots.expired(time.Now())
		}
	})
}

// It took the locks of tasks in memory, too, and had room for others: asynq recovers them, and their slots are free.
func TestAFetchThatIsGivenUpFreesItsSlots(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		in := New(redis.NewClient(&redis.Options{Addr: "127.0.0.1:6379"}), Options{Queues: map[string]int{"default": 1}, Slots: 3}) // nothing is dialed
		defer func() { _ = in.client.Close() }()
		in.spawn = func(time.Duration, func(context.Context)) bool { return false } // the process ends
		p := in.place("default")
		in.slots.wait(p, []Task{{Queue: "default", ID: "a", Message: "\n\x04test"}}, time.Now())
		share := p.fetchWithAcks(1)
		if in.slots.admitting != 1 || in.slots.asked < 1 {
			t.Fatalf("%d are admitted, and %d are asked for", in.slots.admitting, in.slots.asked)
		}
		share.Answered(nil, errors.New("connection reset by peer"))
		if in.slots.admitting != 0 || in.slots.asked != 0 || p.recalls.Load() != 0 {
			t.Errorf("%d are still admitted, %d asked for, and %d recalled", in.slots.admitting, in.slots.asked, p.recalls.Load())
		}
	})
}

// What lies in memory for a tenth of a second goes back, and so does what comes after that.
func TestWhatLiesInMemoryGoesBackEachTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, admin := redistest.Virtual(t)
		in := New(redistest.Patient(t, m), Options{Slots: 3})
		for i := range 3 {
			admin.HSet(t.Context(), "asynq:{default}:t:a", "state", "active", "pending_since", "run")
			admin.Del(t.Context(), "asynq:{default}:pending")
			admin.LPush(t.Context(), "asynq:{default}:active", "a")
			in.came(0, []Task{{Queue: "default", ID: "a", Run: "run"}}, time.Now())
			time.Sleep(unclaimed + time.Millisecond)
			synctest.Wait()
			if n := admin.LLen(t.Context(), "asynq:{default}:pending").Val(); n != 1 || !in.quiet.Load() {
				t.Errorf("time %d: %d tasks are pending, and asynq fetches: %v", i+1, n, !in.quiet.Load())
			}
		}
	})
}

// Locks that no script can release are released at once, also by a process that ends.
func TestLocksElsewhereAreReleasedAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, ends := range []bool{false, true} {
			var sends int
			var outcomes []colocated.Outcome
			apart := releasing(&sends, &outcomes)
			apart.Owner = ""
			in := New(redis.NewClient(&redis.Options{Addr: "127.0.0.1:6379"}), Options{Slots: 1, Tasks: leaves{apart}}) // nothing is dialed
			if ends {
				in.spawn = func(time.Duration, func(context.Context)) bool { return false }
			}
			if left := in.left(Task{}); left.Owner != "" || len(left.Keys) > 0 {
				t.Errorf("%+v is left to the script", left)
			}
			synctest.Wait()
			if sends != 0 || len(outcomes) != 1 {
				t.Errorf("the process ends: %v; of %d releases %d were sent before", ends, len(outcomes), sends)
			}
			_ = in.client.Close()
		}
	})
}

// leaves are Tasks of which one leaves a release.
type leaves struct{ release *colocated.Release }

func (leaves) Fetched(Task)                         {}
func (leaves) Lock(all []Task, _ func(Task)) []Task { return all }
func (leaves) Park(Task, func(), func() bool) bool  { return false }
func (l leaves) Left(Task) *colocated.Release       { return l.release }
