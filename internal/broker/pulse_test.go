package broker

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
)

// A pulse says since when fetches fail, with the last error, until one succeeds; an empty queue is a success, and that Redis does not know
// a script is neither.
func TestAPulseTellsHowFetchesEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var reply error
		var during Pulse
		var conn *Conn
		conn = New(&answers{look: func() error {
			during = conn.Pulse()
			return reply
		}}, Options{Queues: numbered(2), Interval: time.Minute})
		first, second := errors.New(oom), errors.New("LOADING")
		var want Pulse
		for i, step := range []struct {
			reply error
			then  func(now time.Time)
		}{
			{first, func(now time.Time) { want.Err, want.Failing = first, now }},
			{second, func(time.Time) { want.Err = second }},
			{redis.ErrNoScript, func(time.Time) {}},
			{redis.Nil, func(now time.Time) { want.Err, want.Failing, want.Worked, want.Answered = nil, time.Time{}, true, now }},
			{second, func(now time.Time) { want.Err, want.Failing = second, now }},
			{nil, func(now time.Time) { want.Err, want.Failing, want.Answered = nil, time.Time{}, now }},
		} {
			time.Sleep(time.Second)
			now := time.Now()
			reply = step.reply
			conn.EvalSha(t.Context(), dequeue, queueKeys)
			if !during.Began.Equal(now) {
				t.Errorf("step %d: a fetch is under way since %v, want %v", i, during.Began, now)
			}
			want.Ended, want.Busy, want.Interval = now, true, time.Minute
			step.then(now)
			if got := conn.Pulse(); got != want {
				t.Errorf("step %d: %+v, want %+v", i, got, want)
			}
		}
	})
}

// Redis has answered when it has carried out any call of asynq's, if only of its heartbeat.
func TestAPulseTellsWhenRedisHasAnswered(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var reply error
		conn := New(&answers{look: func() error { return reply }}, Options{Queues: numbered(1)})
		for name, sum := range map[string]string{
			"heartbeat": sumNamed(t, "writeServerState"), "recoverer": listLeaseExpired, "any other": sumNamed(t, "schedule"),
		} {
			for _, reply = range []error{nil, redis.Nil, errors.New(oom)} {
				time.Sleep(time.Second)
				before, now := conn.Pulse().Answered, time.Now()
				conn.EvalSha(t.Context(), sum, []string{"asynq:{q}:lease"})
				want := now
				if reply != nil && !errors.Is(reply, redis.Nil) {
					want = before
				}
				if got := conn.Pulse().Answered; !got.Equal(want) {
					t.Errorf("%s: Redis has answered with %v at %v, the pulse says at %v", name, reply, now, got)
				}
			}
		}
		if conn.Pulse().Over {
			t.Error("the server is over before its end")
		}
		conn.EvalSha(t.Context(), sumNamed(t, "clearServerState"), nil)
		if !conn.Pulse().Over {
			t.Error("the server is not over after its end")
		}
	})
}

func TestAServerIsBusyUnlessASlotIsKnownToBeFree(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, client := newVirtual(t)
		tasks := &witness{answers: func(Acknowledgement) (bool, error) { return false, nil }}
		if conn := New(client, Options{Queues: numbered(1)}); !conn.Pulse().Busy {
			t.Error("nobody knows of slots, and the server is not busy")
		}
		var foreign atomic.Bool
		conn := New(client, Options{Queues: numbered(1), Tasks: tasks, Slots: 1, Foreign: &foreign})
		if conn.Pulse().Busy {
			t.Error("a server with a free slot is busy")
		}
		foreign.Store(true)
		if !conn.Pulse().Busy {
			t.Error("with another asynq nobody knows of slots, and the server is not busy")
		}
		foreign.Store(false)
		enqueue(t, client, "a", "")
		if cmd, _ := conn.fetch(t.Context(), queueKeys); cmd.Err() != nil {
			t.Fatal(cmd.Err())
		}
		if !conn.Pulse().Busy {
			t.Error("a server without a free slot is not busy")
		}
	})
}

// asynq's call does not end a fetch: what it brings lies in memory for the next call.
func TestAFetchOutlivesItsCall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, client := newVirtual(t)
		conn := New(client, Options{Queues: numbered(1), Slots: 2, Tasks: &witness{}})
		enqueue(t, client, "a", "")
		over, cancel := context.WithCancel(t.Context())
		cancel()
		if end := <-conn.depart(over, "default"); end.err != nil || end.more {
			t.Errorf("it ends with %+v", end)
		}
		if task, ok := conn.intake.Take(); !ok || task.ID != "a" {
			t.Errorf("it has brought %+v", task)
		}
	})
}
