package worker

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/internal/testing/asynqtest"
	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/middleware"
)

// idle returns a worker that is never started.
func idle(t testing.TB, cfg Config) *Worker {
	t.Helper()
	if cfg.Redis.isZero() {
		cfg.Redis.Addr = "127.0.0.1:1"
	}
	w, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Shutdown(); err != nil {
			t.Error(err)
		}
	})
	return w
}

func TestHandleReportsEveryFaultAtOnce(t *testing.T) {
	t.Parallel()
	w := idle(t, Config{})
	wantParts(t, Handle(w, "", Handler[order]{}), "type of its tasks is empty", "Run is not set", "Keys is not set")
	wantParts(t, Handle(w, "audit", Handler[order]{Keys: order.keys, Unlocked: true}), `"audit"`, "Run is not set", "both Keys and Unlocked")
	wantParts(t, Handle(w, "audit", Handler[order]{
		Run: nothing, Keys: order.keys, TTL: time.Minute, MaxHold: -1, Strategy: middleware.Wait{Attempts: -1, Max: -1},
	}), `"audit"`, "1m0s", "-1ns", "Wait.Attempts", "Wait.Max")
	if len(w.handlers) > 0 {
		t.Error("a handler with faults is registered")
	}
}

// TestMaxHoldOfAHandlerIsCheckedWhenItIsRegistered: the locks would refuse each of its tasks.
func TestMaxHoldOfAHandlerIsCheckedWhenItIsRegistered(t *testing.T) {
	t.Parallel()
	long := Handler[order]{Run: nothing, Keys: order.keys, MaxHold: locking.DefaultFenceTTL}
	wantParts(t, Handle(idle(t, Config{}), "audit", long), `"audit"`, "MaxHold is 1h0m0s", "raise MaxHold of the Options or of the worker's Config")
	if err := Handle(idle(t, Config{MaxHold: long.MaxHold}), "audit", long); err != nil {
		t.Errorf("with the worker's MaxHold raised to it: %v", err)
	}

	synctest.Test(t, func(t *testing.T) { // and the longest that is accepted works
		ran := make(chan struct{}, 1)
		w, m := virtual(t, Config{})
		h := Handler[order]{Keys: order.keys, MaxHold: locking.DefaultFenceTTL - time.Second, Run: func(context.Context, order) error {
			ran <- struct{}{}
			return nil
		}}
		if err := Handle(w, "audit", h); err != nil {
			t.Fatal(err)
		}
		start(t, w)
		asynqtest.Enqueue(t, m, orderTask(t, "audit", "42"))
		<-ran
	})
}

func TestHandlerOfATypeIsRegisteredOnce(t *testing.T) {
	t.Parallel()
	w := idle(t, Config{})
	handle(t, w, "audit", nothing)
	handle(t, w, "audit:deep", nothing) // asynq's own mux would take it for the same
	wantParts(t, Handle(w, "audit", Handler[order]{Run: nothing, Unlocked: true}), `"audit"`, "there is one already")
}

func TestHandlersAreRegisteredBeforeTheStart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, _ := virtual(t, Config{})
		handle(t, w, "audit", nothing)
		start(t, w)
		late := Handler[order]{Run: nothing, Keys: order.keys}
		wantParts(t, Handle(w, "late", late), `"late"`, "has been started")
		if err := w.Shutdown(); err != nil {
			t.Error(err)
		}
		wantParts(t, Handle(w, "late", late), `"late"`)
	})
}

func TestPoisonIsArchivedWithItsReason(t *testing.T) {
	t.Parallel()
	type outcome struct {
		errs  int
		state asynq.TaskState
		text  string
	}
	noJSON := asynq.NewTask("audit", []byte("{"))
	for name, tc := range map[string]struct {
		handler Handler[order]
		task    *asynq.Task
		want    string
	}{
		"undecodable":            {Handler[order]{Keys: order.keys}, noJSON, "cannot be decoded: unexpected end of JSON"},
		"of another type":        {Handler[order]{Keys: order.keys}, asynq.NewTask("audit", []byte(`{"id":7}`)), "cannot be decoded: json: cannot unmarshal number"},
		"empty":                  {Handler[order]{Keys: order.keys}, asynq.NewTask("audit", nil), "cannot be decoded"},
		"refused by own decoder": {Handler[order]{Keys: order.keys, Decode: func(*asynq.Task) (order, error) { return order{}, errors.New("no protobuf") }}, noJSON, "no protobuf"},
		"unlocked":               {Handler[order]{Unlocked: true}, noJSON, "cannot be decoded"},
		"without a key":          {Handler[order]{Keys: func(order) []string { return nil }}, asynq.NewTask("audit", []byte("{}")), "no key"},
		"with an empty key":      {Handler[order]{Keys: func(o order) []string { return []string{o.ID} }}, asynq.NewTask("audit", []byte("{}")), "key is empty"},
		"with a key too large":   {Handler[order]{Keys: func(order) []string { return []string{strings.Repeat("k", 1025)} }}, asynq.NewTask("audit", []byte("{}")), "1025 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var got outcome
				handled := make(chan error, 10)
				w, m := virtual(t, Config{ErrorHandler: asynq.ErrorHandlerFunc(func(_ context.Context, _ *asynq.Task, err error) { handled <- err })})
				tc.handler.Run = func(context.Context, order) error {
					t.Error("the handler was run")
					return nil
				}
				if err := Handle(w, "audit", tc.handler); err != nil {
					t.Fatal(err)
				}
				start(t, w)
				task := asynqtest.Enqueue(t, m, tc.task)
				err := <-handled
				keyErr, ok := errors.AsType[*middleware.KeyError](err)
				if !ok || keyErr.Type != "audit" || !errors.Is(err, middleware.ErrKey) || !errors.Is(err, asynq.SkipRetry) {
					t.Errorf("the error is %#v; want a KeyError", err)
				}
				time.Sleep(5 * time.Second)
				if info := asynqtest.Look(t, m, task); info != nil {
					got.state, got.text = info.State, info.LastErr
				}
				got.errs = 1 + len(handled)
				if got.errs != 1 || got.state != asynq.TaskStateArchived || !strings.Contains(got.text, tc.want) {
					t.Errorf("after %d errors the task is %v, because %q; want archived once with %q", got.errs, got.state, got.text, tc.want)
				}
			})
		})
	}
}

// TestATaskThatBecomesUndecodablePassesOnItsWake: the next waiter must not wait for its timer.
func TestATaskThatBecomesUndecodablePassesOnItsWake(t *testing.T) {
	t.Parallel()
	for name, decode := range map[string]func() (string, error){
		"error":           func() (string, error) { return "", errors.New("the schema is gone") },
		"panic":           func() (string, error) { panic("the schema is gone") },
		"goroutine's end": func() (string, error) { runtime.Goexit(); return "", nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { becomeUndecodable(t, decode) })
		})
	}
}

func becomeUndecodable(t *testing.T, decode func() (string, error)) {
	t.Helper()
	var decoded sync.Map // task -> true
	parked, ran := make(chan string, 10), make(chan string, 10)
	finish := make(chan struct{})
	w, m := virtual(t, Config{
		Strategy: middleware.Requeue{Delay: time.Hour},
		Observer: func(_ context.Context, e middleware.Event) {
			if e.Kind == middleware.Parked {
				parked <- e.Task.ID
			}
		},
	})
	if err := Handle(w, "audit", Handler[string]{
		Decode: func(task *asynq.Task) (string, error) {
			name := task.Headers()["name"]
			if _, again := decoded.LoadOrStore(name, true); again && name == "second" {
				return decode()
			}
			return name, nil
		},
		Keys: func(string) []string { return []string{"order:42"} },
		Run: func(_ context.Context, name string) error {
			ran <- name
			if name == "first" {
				<-finish
			}
			return nil
		},
	}); err != nil {
		t.Fatal(err)
	}
	start(t, w)
	add := func(name string) {
		asynqtest.Enqueue(t, m, asynq.NewTaskWithHeaders("audit", nil, map[string]string{"name": name}), asynq.TaskID(name), asynq.Timeout(30*time.Second))
	}
	add("first")
	<-ran
	for _, name := range []string{"second", "third"} {
		add(name)
		if got := <-parked; got != name {
			t.Fatalf("%s was parked; want %s", got, name)
		}
		time.Sleep(time.Second) // until it is in asynq's retry set
	}
	began := time.Now()
	close(finish)
	if got := <-ran; got != "third" || time.Since(began) > 10*time.Second {
		t.Errorf("%s ran %v after the release; want third at once", got, time.Since(began))
	}
}

func TestPayloadIsDecodedOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var decoded atomic.Int32
		ran := make(chan string, 1)
		w, m := virtual(t, Config{})
		if err := Handle(w, "audit", Handler[*order]{
			Decode: func(task *asynq.Task) (*order, error) {
				decoded.Add(1)
				return &order{ID: task.Headers()["order"]}, nil
			},
			Keys: func(o *order) []string { return o.keys() },
			Run: func(ctx context.Context, o *order) error {
				lease, ok := locking.FromContext(ctx)
				if !ok {
					return errors.New("no lease")
				}
				ran <- o.ID + " with " + strings.Join(lease.Keys(), ",")
				return nil
			},
		}); err != nil {
			t.Fatal(err)
		}
		start(t, w)
		asynqtest.Enqueue(t, m, asynq.NewTaskWithHeaders("audit", nil, map[string]string{"order": "42"}))
		if got := <-ran; got != "42 with order:42" || decoded.Load() != 1 {
			t.Errorf("ran %s, decoded %d times", got, decoded.Load())
		}
	})
}

func TestUnlockedHandlersRunAtTheSameTime(t *testing.T) {
	t.Parallel()
	for _, unlocked := range []bool{false, true} {
		t.Run(fmt.Sprintf("unlocked=%t", unlocked), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				now, most := 0, 0
				h := Handler[order]{Unlocked: unlocked, Run: func(ctx context.Context, _ order) error {
					mu.Lock()
					now++
					most = max(most, now)
					mu.Unlock()
					time.Sleep(time.Second)
					mu.Lock()
					now--
					mu.Unlock()
					_, leased := locking.FromContext(ctx)
					if leased == unlocked {
						t.Errorf("the context has a lease: %t", leased)
					}
					return nil
				}}
				if !unlocked {
					h.Keys = order.keys
				}
				w, m := virtual(t, Config{})
				if err := Handle(w, "audit", h); err != nil {
					t.Fatal(err)
				}
				start(t, w)
				for range 5 {
					asynqtest.Enqueue(t, m, orderTask(t, "audit", "42"))
				}
				time.Sleep(15 * time.Second)
				want := 1
				if unlocked {
					want = 5
				}
				mu.Lock()
				defer mu.Unlock()
				if most != want {
					t.Errorf("%d ran at a time; want %d", most, want)
				}
			})
		})
	}
}

func TestTaskOfAnUnknownTypeFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, m := virtual(t, Config{})
		handle(t, w, "audit", func(context.Context, order) error {
			t.Error("a handler ran for a task of another type")
			return nil
		})
		start(t, w)
		task := asynqtest.Enqueue(t, m, orderTask(t, "audit:deep", "42"))
		time.Sleep(5 * time.Second)
		info := asynqtest.Look(t, m, task)
		if info == nil || info.State != asynq.TaskStateRetry || info.Retried != 1 || !strings.Contains(info.LastErr, "audit:deep") {
			t.Errorf("it is %+v; want one that failed, and is retried where the type is known", info)
		}
	})
}
