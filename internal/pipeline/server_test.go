package pipeline_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/pipeline"
	"github.com/railtoken/railtoken/internal/testing/redistest"
)

// deadlines makes a client give up when its context says so, and at the first failure.
func deadlines(o *redis.Options) {
	o.ContextTimeoutEnabled, o.MaxRetries, o.DialerRetries = true, -1, 1
}

// together makes calls that go out in one pipeline, and returns their answers.
func together(t testing.TB, n *pipeline.Server, w *wire, calls ...func() <-chan *pipeline.Call) []*pipeline.Call {
	t.Helper()
	w.holds(true)
	first := send(t, n, echo, nil, "first")
	next(t, w.began)
	answers := make([]<-chan *pipeline.Call, len(calls))
	for i, call := range calls {
		answers[i] = call()
	}
	w.holds(false)
	w.goOn <- struct{}{}
	if c := next(t, first); c.Err != nil || c.Reply != "first" {
		t.Fatalf("the first call has reply %v, error %v", c.Reply, c.Err)
	}
	out := make([]*pipeline.Call, len(calls))
	for i, answer := range answers {
		out[i] = next(t, answer)
	}
	return out
}

func TestAPipelineSendsForgottenScriptsOnce(t *testing.T) {
	t.Parallel()
	redisServer := redistest.Start(t)
	w := newWire(nil)
	client := redisServer.Client(t, deadlines)
	client.AddHook(w)
	n := pipeline.New(client, pipeline.Options{Leaders: 1})
	double := pipeline.NewScript("return 2 * ARGV[1]")
	for range 2 {
		if err := redisServer.Client(t).ScriptFlush(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		before, trips := w.sources(), len(w.sizes())
		next(t, send(t, n, echo, nil, "load")) // so that one script is known and the other is not
		var calls []func() <-chan *pipeline.Call
		for i := range 20 {
			calls = append(calls, func() <-chan *pipeline.Call {
				if i%2 == 0 {
					return send(t, n, echo, nil, i)
				}
				return send(t, n, double, nil, i)
			})
		}
		for i, c := range together(t, n, w, calls...) {
			var want any = fmt.Sprint(i)
			if i%2 == 1 {
				want = int64(2 * i)
			}
			if c.Err != nil || c.Reply != want {
				t.Errorf("call %d has reply %v, error %v; want %v", i, c.Reply, c.Err, want)
			}
		}
		if got := w.sources() - before; got != 2 {
			t.Errorf("%d sources sent, want one of each script", got)
		}
		// Two for the script that is loaded, one for the first, two for the pipeline.
		if got := len(w.sizes()) - trips; got != 5 {
			t.Errorf("%d round trips, want 5: %v", got, w.sizes())
		}
	}
}

func TestOneCallsErrorLeavesItsNeighbours(t *testing.T) {
	t.Parallel()
	redisServer := redistest.Start(t)
	w := newWire(nil)
	client := redisServer.Client(t, deadlines)
	client.AddHook(w)
	n := pipeline.New(client, pipeline.Options{Leaders: 1, Patience: time.Second})
	if err := client.LPush(t.Context(), "list", 1).Err(); err != nil {
		t.Fatal(err)
	}
	get := pipeline.NewScript("return redis.call('GET', KEYS[1])")
	fail := pipeline.NewScript("return redis.error_reply('SORRY not today')")
	answers := together(t, n, w,
		func() <-chan *pipeline.Call { return send(t, n, get, []string{"list"}, "wrong type") },
		func() <-chan *pipeline.Call { return send(t, n, echo, nil, "fine") },
		func() <-chan *pipeline.Call { return send(t, n, fail, nil, "sorry") },
		func() <-chan *pipeline.Call { return send(t, n, get, []string{"nothing"}, "nil") },
		func() <-chan *pipeline.Call { return send(t, n, echo, nil, "fine too") },
	)
	for i, want := range []string{"WRONGTYPE", "", "SORRY", redis.Nil.Error(), ""} {
		if err := answers[i].Err; (want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("call %d has error %v, want %q", i, err, want)
		}
	}
	if answers[1].Reply != "fine" || answers[4].Reply != "fine too" {
		t.Errorf("replies %v and %v", answers[1].Reply, answers[4].Reply)
	}
	next(t, send(t, n, echo, nil, "the server is well"))
}

func TestABrokenConnectionFailsItsPipelineAlone(t *testing.T) {
	t.Parallel()
	redisServer := redistest.Start(t)
	w := newWire(nil)
	client := redisServer.Client(t, deadlines)
	client.AddHook(w)
	n := pipeline.New(client, pipeline.Options{Leaders: 1})
	next(t, send(t, n, echo, nil, "warm up"))
	// The script in the middle ends the connection that it came by, after the reply to the one before.
	quit := pipeline.NewScript("redis.call('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'no') return 1")
	var calls []func() <-chan *pipeline.Call
	for i := range 5 {
		calls = append(calls, func() <-chan *pipeline.Call {
			if i == 2 {
				return send(t, n, quit, nil, i)
			}
			return send(t, n, echo, nil, i)
		})
	}
	answers := together(t, n, w, calls...)
	failed := 0
	for i, c := range answers {
		if c.Err != nil {
			failed++
		} else if c.Reply == nil {
			t.Errorf("call %d has neither reply nor error", i)
		}
	}
	t.Logf("%d calls failed: %v", failed, answers[4].Err)
	if c := next(t, send(t, n, echo, nil, "again")); c.Err != nil {
		t.Errorf("the next call: %v", c.Err)
	}
}

func TestAHangingServerIsRefusedUntilItAnswers(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ fail, mend func(s *redistest.Server) }{
		"paused": {(*redistest.Server).Pause, (*redistest.Server).Resume},
		"killed": {(*redistest.Server).Kill, func(s *redistest.Server) { s.Restart(t) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			redisServer := redistest.Start(t)
			client := redisServer.Client(t, deadlines, func(o *redis.Options) { o.ReadTimeout = 10 * time.Second })
			n := pipeline.New(client,
				pipeline.Options{Leaders: 1, Timeout: 500 * time.Millisecond, Patience: 50 * time.Millisecond})
			next(t, send(t, n, echo, nil, "warm up"))
			tt.fail(redisServer)
			first := send(t, n, echo, nil, "first")
			var err error
			for began := time.Now(); err == nil; <-time.After(time.Millisecond) {
				asked := time.Now()
				err = n.Send(pipeline.NewCall(func(*pipeline.Call) {}, echo, nil, "more"))
				if took := time.Since(asked); took > 400*time.Millisecond {
					t.Errorf("it took %v to take a call or refuse it", took)
				}
				if time.Since(began) > patience {
					t.Fatal("calls are still taken")
				}
			}
			t.Logf("refused: %v", err)
			if c := next(t, first); c.Err == nil {
				t.Errorf("the first call has the answer %v of a server that is away", c.Reply)
			} else if name == "paused" && !isIO(c.Err) {
				t.Errorf("the first call has %v, want a time-out", c.Err)
			}
			tt.mend(redisServer)
			for began := time.Now(); ; <-time.After(time.Millisecond) {
				answers := make(chan *pipeline.Call, 1)
				if err = n.Send(pipeline.NewCall(func(c *pipeline.Call) { answers <- c }, echo, nil, "again")); err == nil {
					if err = next(t, answers).Err; err == nil {
						return
					}
				}
				if time.Since(began) > patience {
					t.Fatalf("the server is back and still refused: %v", err)
				}
			}
		})
	}
}

func TestRunIsBoundedByContextAndTimeout(t *testing.T) {
	t.Parallel()
	redisServer := redistest.Start(t)
	client := redisServer.Client(t, deadlines, func(o *redis.Options) { o.ReadTimeout = time.Hour })
	n := pipeline.New(client, pipeline.Options{Leaders: 1, Timeout: 100 * time.Millisecond})
	if _, err := n.Run(t.Context(), pipeline.NewCall(nil, echo, nil, 1)); err != nil {
		t.Fatal(err)
	}
	redisServer.Pause()
	defer redisServer.Resume()
	began := time.Now()
	if _, err := n.Run(t.Context(), pipeline.NewCall(nil, echo, nil, 2)); err == nil ||
		time.Since(began) > 5*time.Second {
		t.Errorf("error %v after %v, want one after 100ms", err, time.Since(began))
	}
	slow := pipeline.New(client, pipeline.Options{Leaders: 1, Timeout: time.Hour})
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	began = time.Now()
	if _, err := slow.Run(ctx, pipeline.NewCall(nil, echo, nil, 3)); err == nil || time.Since(began) > 5*time.Second {
		t.Errorf("error %v after %v, want one after 100ms", err, time.Since(began))
	}
}

func TestEveryCallOfManyGoroutinesIsMadeOnce(t *testing.T) {
	t.Parallel()
	const goroutines, each = 48, 60
	isTimeout := func(err error) bool {
		timeout, ok := errors.AsType[net.Error](err)
		return ok && timeout.Timeout()
	}
	incr := pipeline.NewScript("return redis.call('INCR', KEYS[1])")
	for leaders := range 3 {
		t.Run(fmt.Sprintf("%d leaders", leaders), func(t *testing.T) {
			t.Parallel()
			redisServer := redistest.Start(t)
			client := redisServer.Client(t, deadlines, func(o *redis.Options) { o.ReadTimeout = patience })
			n := pipeline.New(client, pipeline.Options{Leaders: leaders, Timeout: patience})
			var mu sync.Mutex
			seen, givenUp := map[int64]bool{}, int64(0)
			count := func(reply any, err error, took time.Duration) {
				mu.Lock()
				defer mu.Unlock()
				got, _ := reply.(int64)
				switch {
				case errors.Is(err, context.Canceled):
					givenUp++
				case isTimeout(err) && took >= 250*time.Millisecond: // Run waits no longer, and the outcome is unknown
					givenUp++
				case err != nil:
					t.Errorf("error %v", err)
				case got == 0 || seen[got]:
					t.Errorf("reply %v, which is wrong or another's", reply)
				default:
					seen[got] = true
				}
			}
			var crowd sync.WaitGroup
			for g := range goroutines {
				crowd.Go(func() {
					for i := range each {
						switch (g + i) % 4 {
						case 0:
							answers := make(chan *pipeline.Call, 1)
							if err := n.Send(pipeline.NewCall(func(c *pipeline.Call) { answers <- c }, incr, []string{"n"})); err != nil {
								t.Error(err)
								return
							}
							c := <-answers
							count(c.Reply, c.Err, 0)
						case 1:
							ctx, cancel := context.WithCancel(t.Context())
							cancel()
							reply, err := n.Run(ctx, pipeline.NewCall(nil, incr, []string{"n"}))
							count(reply, err, 0)
						default:
							began := time.Now()
							reply, err := n.Run(t.Context(), pipeline.NewCall(nil, incr, []string{"n"}))
							count(reply, err, time.Since(began))
						}
					}
				})
			}
			crowd.Wait()
			// A call that was given up on its way has been made all the same, and its answer may still come.
			last := send(t, n, incr, []string{"n"})
			total := next(t, last).Reply.(int64) - 1
			mu.Lock()
			defer mu.Unlock()
			if made := int64(len(seen)); made > total || made+givenUp < goroutines*each || total > goroutines*each {
				t.Errorf("%d calls made by the server, %d answers, %d given up, of %d in all", total, made, givenUp,
					goroutines*each)
			}
		})
	}
}
