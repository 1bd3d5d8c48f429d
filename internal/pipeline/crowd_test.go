package pipeline_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/pipeline"
)

// beside has one Server of a crowd wait for the answer to four joint calls, and gives another one to test, with how many commands
// were sent until now. answer ends the wait, as does the end of the test.
func beside(t *testing.T, test func(b *pipeline.Server, script *pipeline.Script, sent func() int, answer func())) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		held, free := newWire(func() error { return errors.New("no answer") }), newWire(func() error { return errors.New("no answer") })
		var crowd pipeline.Crowd
		server := func(w *wire) *pipeline.Server {
			client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", ContextTimeoutEnabled: true, MaxRetries: -1})
			t.Cleanup(func() { _ = client.Close() })
			client.AddHook(w)
			return pipeline.New(client, pipeline.Options{Leaders: 1, Least: 3, Crowd: &crowd})
		}
		a, b, script := server(held), server(free), joint(&shares{})
		held.holds(true)
		all := []<-chan *pipeline.Call{send(t, a, echo, nil, "busy")}
		<-held.began
		for range 4 {
			all = append(all, send(t, a, script, []string{"list"}, "call"))
		}
		held.goOn <- struct{}{}
		<-held.began
		answered := false
		answer := func() {
			if !answered {
				answered = true
				held.holds(false)
				close(held.goOn)
				for _, c := range all {
					<-c
				}
			}
		}
		test(b, script, func() int {
			synctest.Wait()
			return len(free.sizes())
		}, answer)
		answer()
		time.Sleep(time.Minute) // virtual: nothing waits any more
		synctest.Wait()
	})
}

func TestACrowdWaitsForEachOther(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]func(b *pipeline.Server, script *pipeline.Script, sent func() int, answer func()){
		"until there are enough": func(b *pipeline.Server, script *pipeline.Script, sent func() int, _ func()) {
			for n := 1; n <= 3; n++ {
				send(t, b, script, []string{"list"}, "call")
				if got, want := sent(), n/3; got != want {
					t.Errorf("with %d calls, %d commands are sent, want %d", n, got, want)
				}
			}
		},
		"until the other one has its answer": func(b *pipeline.Server, script *pipeline.Script, sent func() int, answer func()) {
			send(t, b, script, []string{"list"}, "call")
			if got := sent(); got != 0 {
				t.Errorf("%d commands are sent beside the other's", got)
			}
			answer()
			if got := sent(); got != 1 {
				t.Errorf("after the other's answer %d commands are sent, want 1", got)
			}
		},
		"not for long": func(b *pipeline.Server, script *pipeline.Script, sent func() int, _ func()) {
			send(t, b, script, []string{"list"}, "call")
			time.Sleep(4 * time.Millisecond)
			if got := sent(); got != 0 {
				t.Errorf("%d commands are sent beside the other's", got)
			}
			time.Sleep(2 * time.Millisecond)
			if got := sent(); got != 1 {
				t.Errorf("while the other one hangs, %d commands are sent, want 1", got)
			}
		},
		"with no other call": func(b *pipeline.Server, _ *pipeline.Script, sent func() int, _ func()) {
			send(t, b, echo, nil, "call")
			if got := sent(); got != 1 {
				t.Errorf("%d commands are sent, want that which is no joint one", got)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			beside(t, test)
		})
	}
}
