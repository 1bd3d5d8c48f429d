package attach_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/attach"
	"github.com/railtoken/railtoken/internal/line"
	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/internal/testing/testserver"
	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/middleware"
)

var kept = asynq.Retention(time.Hour)

func TestAWaitReturnsHowTheTaskHasEnded(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a := r.attach(asynq.Config{Concurrency: 8}, attach.Options{Strategy: middleware.FailFast{}})
	p := a.Producer(nil)
	release := r.held(a)
	defer release()
	enqueue := func(kind, key string, opts ...asynq.Option) *asynq.TaskInfo {
		info, err := p.EnqueueContext(t.Context(), asynq.NewTask(kind, []byte(key)), append(opts, asynq.TaskID(kind+key))...)
		ok(t, err)
		return info
	}
	var waits sync.WaitGroup
	for _, tt := range []struct {
		info  *asynq.TaskInfo
		is    []error
		isNot []error
		cause attach.EndCause
	}{
		{enqueue("skip", "a", kept), []error{attach.ErrArchived}, []error{attach.ErrDiscarded, attach.ErrCancelled}, attach.EndSkipRetry},
		{enqueue("fail", "b", kept, asynq.MaxRetry(0)), []error{attach.ErrArchived}, nil, attach.EndExhausted},
		{enqueue("ok", "k", kept), []error{attach.ErrArchived, locking.ErrHeld}, nil, attach.EndFailFast},
		{enqueue("revoke", "d", kept), []error{attach.ErrDiscarded}, []error{attach.ErrArchived}, ""},
		{enqueue("ok", "e"), []error{attach.ErrNoRetention}, nil, ""},
		{&asynq.TaskInfo{ID: enqueue("ok", "g", asynq.ProcessIn(time.Hour)).ID, Queue: "default"}, []error{attach.ErrNoRetention}, nil, ""},
		{&asynq.TaskInfo{ID: "none", Queue: "default"}, []error{attach.ErrNoResult}, nil, ""},
	} {
		waits.Go(func() {
			result, err := p.Wait(t.Context(), tt.info)
			if result != nil || err == nil {
				t.Errorf("the result is %q", result)
			}
			for _, target := range tt.is {
				if !errors.Is(err, target) {
					t.Errorf("%v is not %v", err, target)
				}
			}
			for _, target := range tt.isNot {
				if errors.Is(err, target) {
					t.Errorf("%v is %v", err, target)
				}
			}
			if ended, ok := errors.AsType[*attach.EndedError](err); ok && ended.Reason.Cause != tt.cause {
				t.Errorf("the cause of %v is %q, want %q", err, ended.Reason.Cause, tt.cause)
			}
		})
	}
	result := enqueue("result", "f", kept)
	for _, info := range []*asynq.TaskInfo{nil, {}, {ID: "x"}, {Queue: "default"}} {
		if _, err := p.Wait(t.Context(), info); err == nil || !strings.Contains(err.Error(), "TaskInfo") {
			t.Errorf("a wait for %+v: %v", info, err)
		}
	}
	r.serve(a.Client(), a.Config(), a.Lock(byPayload)(asynq.HandlerFunc(fails)))
	waits.Wait()
	for range 2 { // the second time it has ended before
		if got, err := p.Wait(t.Context(), result); err != nil || string(got) != "42" {
			t.Errorf("the result is %q, %v", got, err)
		}
	}
}

// The end is announced, so nobody waits for the next look, which comes each second. All waits share one connection.
func TestAHundredWaitersHearOfEndsAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, _ := redistest.Virtual(t)
		const waiters = 100
		p, err := attach.NewProducer(redistest.VirtualClient(t, m), attach.ProducerOptions{})
		ok(t, err)
		a, err := attach.New(redistest.Patient(t, m), asynq.Config{Concurrency: waiters, LogLevel: asynq.FatalLevel}, attach.Options{})
		ok(t, err)
		var ended sync.Map // when the work of a task ended, by its ID
		begin := make(chan struct{})
		s := asynq.NewServerFromRedisClient(a.Client(), a.Config())
		ok(t, s.Start(a.Lock(byPayload)(asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
			<-begin
			_, err := task.ResultWriter().Write(task.Payload())
			id, _ := asynq.GetTaskID(ctx)
			ended.Store(id, time.Now())
			return err
		}))))
		took := make([]time.Duration, waiters)
		var all sync.WaitGroup
		for i := range waiters {
			key := fmt.Sprint("k", i)
			info, err := p.EnqueueContext(t.Context(), asynq.NewTask("test", []byte(key)), kept)
			ok(t, err)
			all.Go(func() {
				result, err := p.Wait(t.Context(), info)
				now := time.Now()
				if err != nil || string(result) != key {
					t.Errorf("%s has the result %q, %v", key, result, err)
				}
				if at, ok := ended.Load(info.ID); ok {
					took[i] = now.Sub(at.(time.Time))
				}
			})
		}
		time.Sleep(1500 * time.Millisecond) // all wait, and the next look is half a second away
		channels := m.PubSubChannels("railtoken:ended:*")
		if n := m.PubSubNumSub(channels...); len(channels) != 1 || n[channels[0]] != 1 {
			t.Errorf("the subscriptions are %v", n)
		}
		close(begin)
		all.Wait()
		slices.Sort(took)
		t.Logf("p50 %v, max %v", took[waiters/2], took[waiters-1])
		if most := took[waiters-1]; most > 100*time.Millisecond {
			t.Errorf("a wait took %v longer than its task", most)
		}
		s.Shutdown()
		ok(t, a.Close())
		ok(t, p.Close())
	})
}

// Whoever waits for a task learns of its end by a message, and not only by the next look, whichever script ends it.
func TestEachEndIsAnnounced(t *testing.T) {
	t.Parallel()
	run := func(t *testing.T, _ *attach.Producer, _ string, goOn chan struct{}) { t.Helper(); close(goOn) }
	for name, tt := range map[string]struct {
		cluster bool
		due     asynq.Option
		end     func(t *testing.T, p *attach.Producer, id string, goOn chan struct{})
	}{
		"with the next fetch":        {false, asynq.ProcessIn(0), run},
		"by a script alone, Cluster": {true, asynq.ProcessIn(0), run},
		"by a cancellation": {false, asynq.ProcessIn(time.Hour), func(t *testing.T, p *attach.Producer, id string, _ chan struct{}) {
			t.Helper()
			_, err := (*line.Engine)(p.Queue()).Cancel(t.Context(), line.Task{Queue: "default", ID: id}, line.Cancellation{By: "ann"})
			ok(t, err)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, client := redistest.Virtual(t)
			var tasks redis.UniversalClient = client
			if tt.cluster {
				tasks = redistest.VirtualCluster(t, m)
			}
			a := attached(t, tasks, asynq.Config{Concurrency: 2, LogLevel: asynq.FatalLevel}, attach.Options{})
			goOn := make(chan struct{})
			s := asynq.NewServerFromRedisClient(a.Client(), a.Config())
			ok(t, s.Start(a.Lock(byPayload)(asynq.HandlerFunc(func(context.Context, *asynq.Task) error { <-goOn; return nil }))))
			t.Cleanup(s.Shutdown)
			messages := redistest.VirtualClient(t, m).PSubscribe(t.Context(), "railtoken:ended:*")
			t.Cleanup(func() { _ = messages.Close() })
			_, err := messages.Receive(t.Context())
			ok(t, err)
			p := a.Producer(nil)
			info, err := p.EnqueueContext(t.Context(), asynq.NewTask("test", []byte("k")), kept, tt.due)
			ok(t, err)
			waited := make(chan error, 1)
			go func() {
				_, err := p.Wait(t.Context(), info)
				waited <- err
			}()
			hash := "asynq:{default}:t:" + info.ID
			for began := time.Now(); !client.HExists(t.Context(), hash, "railtoken:awaited").Val() && time.Since(began) < limit; {
				<-time.After(2 * time.Millisecond)
			}
			tt.end(t, p, info.ID, goOn)
			if got := redistest.Receive(t, messages.Channel(), limit); got.Payload != hash {
				t.Errorf("the message names %q, want %q", got.Payload, hash)
			}
			if err := redistest.Receive(t, waited, limit); (err != nil) != strings.Contains(name, "cancel") {
				t.Error(err)
			}
		})
	}
}

// A server that is not attached sends no notice, and asynq's Inspector neither.
func TestAWaitNeedsNoNotice(t *testing.T) {
	t.Parallel()
	testserver.LeaveToLong(t)
	r := newRig(t)
	p := r.produce()
	began := make(chan struct{}, 1)
	goOn := make(chan struct{})
	r.serve(r.client, asynq.Config{LogLevel: asynq.FatalLevel}, asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
		began <- struct{}{}
		<-goOn
		return fails(ctx, task)
	}))
	wait := func(info *asynq.TaskInfo) <-chan error {
		done := make(chan error, 1)
		go func() {
			_, err := p.Wait(t.Context(), info)
			done <- err
		}()
		r.until("it waits", func() bool {
			return r.client.HExists(t.Context(), "asynq:{default}:t:"+info.ID, "railtoken:awaited").Val()
		})
		return done
	}
	running, err := p.EnqueueContext(t.Context(), asynq.NewTask("result", []byte("k")), kept)
	ok(t, err)
	redistest.Receive(t, began, limit)
	waited := wait(running)
	close(goOn)
	if err := redistest.Receive(t, waited, limit); err != nil {
		t.Error(err)
	}
	later := r.record(p, "k", kept, asynq.ProcessIn(time.Hour))
	waited = wait(later)
	ok(t, r.inspect.DeleteTask("default", later.ID))
	if err := redistest.Receive(t, waited, limit); !errors.Is(err, attach.ErrDiscarded) {
		t.Error(err)
	}
	later = r.record(p, "k", kept, asynq.ProcessIn(time.Hour))
	waited = wait(later)
	ok(t, r.inspect.ArchiveTask("default", later.ID))
	err = redistest.Receive(t, waited, limit)
	if ended, is := errors.AsType[*attach.EndedError](err); !is || ended.Reason.Cause != attach.EndByHand {
		t.Error(err)
	}
}

func TestAWaitEndsWithItsContextOrTheProducer(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := r.produce()
	info := r.record(p, "k", kept)
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("the customer has left")
	done := make(chan error, 2)
	go func() {
		_, err := p.Wait(ctx, info)
		done <- err
	}()
	cancel(why)
	if err := redistest.Receive(t, done, limit); !errors.Is(err, why) && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	go func() {
		_, err := p.Wait(t.Context(), info)
		done <- err
	}()
	r.until("it waits", func() bool { return r.client.Exists(t.Context(), "asynq:{default}:awaited").Val() == 1 })
	ok(t, p.Close())
	if err := redistest.Receive(t, done, limit); err == nil || !strings.Contains(err.Error(), "closed") {
		t.Error(err)
	}
	if _, err := p.Wait(t.Context(), info); err == nil || !strings.Contains(err.Error(), "closed") {
		t.Error(err)
	}
}

// The task moves to another queue when it is parked, before and during a wait.
func TestAWaitFollowsATaskToItsQueue(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a := r.attach(asynq.Config{Concurrency: 4, Queues: map[string]int{"default": 1, "slow": 1}},
		attach.Options{Strategy: middleware.Requeue{Queue: "slow"}})
	p := a.Producer(nil)
	release := r.held(a)
	r.serve(a.Client(), a.Config(), a.Lock(byPayload)(asynq.HandlerFunc(fails)))
	done := make(chan error, 2)
	wait := func(info *asynq.TaskInfo) {
		result, err := p.Wait(t.Context(), info)
		if err == nil && string(result) != "42" {
			err = fmt.Errorf("the result is %q", result)
		}
		done <- err
	}
	for i := range 2 {
		info, err := p.EnqueueContext(t.Context(), asynq.NewTask("result", []byte("k")), kept)
		ok(t, err)
		if i == 0 {
			go wait(info)
		}
		r.until("it is parked", func() bool { return r.client.Exists(t.Context(), "asynq:{slow}:t:"+info.ID).Val() == 1 })
		if i == 1 {
			go wait(info)
		}
		r.until("it is waited for", func() bool {
			return r.client.HExists(t.Context(), "asynq:{slow}:t:"+info.ID, "railtoken:awaited").Val()
		})
	}
	release()
	for range 2 {
		if err := redistest.Receive(t, done, limit); err != nil {
			t.Error(err)
		}
	}
}
