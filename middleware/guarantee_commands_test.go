package middleware_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/middleware"
)

// commands counts what a process sends to Redis, by what it is for. What asynq sends again and again, whether there are
// tasks or not, does not count: looks into empty queues, heartbeats, timers.
type commands struct {
	each func(name string) // not nil: called after each that counts

	mu sync.Mutex
	n  map[string]int
}

// countCommands begins to count what the rig's client sends. each, when not nil, is called after each command that
// counts.
func (r *rig) countCommands(each func(name string)) *commands {
	c := &commands{n: map[string]int{}, each: each}
	r.client.(*redis.Client).AddHook(c)
	return c
}

// counts returns the counts so far.
func (c *commands) counts() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.n)
}

func (c *commands) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.n)
}

func (c *commands) count(cmd redis.Cmder, err error) {
	for _, name := range namesOf(cmd, err) {
		c.mu.Lock()
		c.n[name]++
		c.mu.Unlock()
		if c.each != nil {
			c.each(name)
		}
	}
}

// namesOf returns what a command was for; nothing for one that does not count. One that takes or releases several locks
// for tasks that came together counts once for each of them: it is chance how many do.
func namesOf(cmd redis.Cmder, err error) (names []string) {
	args := cmd.Args()
	if n, ok := numberOfKeys(args); ok && n > 3 && n%3 == 0 && len(args) > 3+n && strings.Contains(fmt.Sprint(args[3]), "railtoken:lock:") {
		if codes, ok := args[3+n].(string); ok && len(codes) == n/3 {
			return namesOfCalls(cmd, codes)
		}
	}
	if name := nameOf(cmd, err); name != "" {
		names = append(names, name)
	}
	return names
}

func (c *commands) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c *commands) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		c.count(cmd, err)
		return err
	}
}

func (c *commands) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		for _, cmd := range cmds {
			c.count(cmd, cmd.Err())
		}
		return err
	}
}

// namesOfCalls returns the names of the calls that one command makes; none when the server did not know its script,
// which is sent again.
func namesOfCalls(cmd redis.Cmder, codes string) (names []string) {
	replies, _ := cmd.(interface{ Val() any }).Val().([]any)
	for i := range min(len(codes), len(replies)) {
		refused, _ := replies[i].([]any)
		switch {
		case codes[i] < 'a':
			names = append(names, "release")
		case len(refused) == 5:
			names = append(names, "acquire, refused")
		default:
			names = append(names, "acquire")
		}
	}
	return names
}

// numberOfKeys returns that of a call of a script.
func numberOfKeys(args []any) (n int, ok bool) {
	if len(args) > 2 {
		n, ok = args[2].(int)
	}
	return n, ok
}

// nameOf returns what a command was for, or "" for one that does not count. A script is told by its keys and arguments.
func nameOf(cmd redis.Cmder, err error) string {
	args := cmd.Args()
	var text []string
	for _, a := range args {
		s, ok := a.(string)
		if !ok {
			s = fmt.Sprint(a)
		}
		text = append(text, s)
	}
	if name := strings.ToLower(text[0]); name != "evalsha" && name != "eval" {
		switch {
		case name == "ping" || name == "info" || name == "hello" || name == "client":
			return ""
		case name == "zcard" && text[1] == "railtoken:parked:owed": // looks for lost wakes
			return ""
		case len(text) > 1 && strings.HasPrefix(text[1], "asynq:"):
			if slices.Contains([]string{"zadd", "zrangebyscore", "sadd", "smembers", "srem", "zrem", "exists"}, name) {
				return "" // heartbeats, and the lists of queues and servers
			}
		}
		if name == "hget" && text[len(text)-1] == "state" || name == "exists" && strings.HasPrefix(text[1], "railtoken:lock:") {
			return "follow-up" // of a wake whose task came, and ended, before the reply to it
		}
		return "other: " + strings.Join(text[:min(len(text), 3)], " ")
	}
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		return "" // it is sent again with its text
	}
	n := args[2].(int)
	keys, rest := text[3:3+n], len(text)-3-n
	is := func(i int, part string) bool { return i < n && strings.Contains(keys[i], part) }
	switch {
	case is(0, "railtoken:waiters:"):
		return "wake"
	case is(0, "railtoken:sequence:"):
		return "sequence"
	case is(0, "railtoken:lock:") && rest == 2:
		return "release"
	case is(0, "railtoken:lock:") && rest == 4:
		return "renew"
	case is(0, "railtoken:lock:"):
		if c, ok := cmd.(interface{ Val() any }); ok {
			if refused, ok := c.Val().([]any); ok && len(refused) == 5 {
				return "acquire, refused"
			}
		}
		return "acquire"
	case is(0, ":pending") && is(1, ":paused"):
		if reply, _ := cmd.(interface{ Val() any }).Val().([]any); len(reply) == 0 {
			return "" // an empty queue
		}
		return "fetch"
	case is(0, ":t:") && is(1, ":pending"):
		return "enqueue"
	case is(0, ":t:") && is(3, ":retry"):
		return "park"
	case is(0, ":active") && is(1, ":lease"):
		return "done"
	case is(0, ":retry"), is(0, ":scheduled"), is(0, ":completed"), is(0, ":lease"), is(0, ":aggregation_sets"), is(0, "asynq:servers"):
		return ""
	}
	return "other: script with " + strings.Join(keys, " ")
}

func TestAParkedTaskCostsAFixedNumberOfCommands(t *testing.T) {
	t.Parallel()
	bubble(t, func(r *rig) {
		const tasks = 20
		r.serve(r.options(parkAlways()), asynq.Config{Concurrency: 4}, func(context.Context, *asynq.Task) error { return nil })
		sent := r.countCommands(nil)
		// The first round also sends the scripts themselves.
		for round := range 2 {
			lease := r.hold("order:1")
			sent.reset()
			for i := range tasks {
				r.enqueue(payload{Key: "order:1"}, asynq.MaxRetry(3))
				if i == 0 { // the admission parks behind it only once it is parked
					r.events.await(r, round*tasks+1, parked)
				}
			}
			r.events.await(r, (round+1)*tasks, parked)
			if lease.Err() != nil {
				r.Fatal(lease.Err())
			}
			r.giveBack(lease)
			r.events.await(r, (round+1)*tasks, func(e middleware.Event) bool { return e.Kind == middleware.Released })
			<-time.After(2 * time.Second) // what asynq writes after a handler has returned
		}
		got := sent.counts()
		total := 0
		want := map[string]int{
			"enqueue":  tasks,
			"fetch":    2 * tasks, // one brings a task that comes alone, and the next finds its key held; of several, the one also does the other
			"park":     1,         // of the first task; behind it the admission parks
			"sequence": 1,         // the holder's look for one, before its wake
			"wake":     2,         // by the holder, and by a follow-up; the tasks wake one another as they are done, and are fetched with that
			"release":  1,         // the holder's
			"done":     tasks,
		}
		if got["follow-up"] > 2 {
			r.Errorf("%d commands follow up the wake, want at most 2", got["follow-up"])
		}
		delete(got, "follow-up")
		for _, name := range slices.Sorted(maps.Keys(got)) {
			r.Logf("%-16s %3d", name, got[name])
			total += got[name]
			if got[name] > want[name] {
				r.Errorf("%s: %d commands for %d tasks, want at most %d", name, got[name], tasks, want[name])
			}
		}
		for name := range want {
			if got[name] == 0 {
				r.Errorf("%s: no command was counted: does the test still know it?", name)
			}
		}
		r.Logf("%.1f commands for a task that is parked once, with enqueuing it", float64(total-2)/tasks)
	})
}

func TestAnUncontendedTaskCostsThreeCommands(t *testing.T) {
	t.Parallel()
	bubble(t, func(r *rig) {
		const tasks = 20
		r.serve(r.options(parkAlways()), asynq.Config{Concurrency: 4}, func(context.Context, *asynq.Task) error { return nil })
		sent := r.countCommands(nil)
		for round := range 2 {
			sent.reset()
			for i := range tasks {
				r.enqueue(payload{Key: fmt.Sprint("order:", round, "/", i)}, asynq.MaxRetry(3))
			}
			r.events.await(r, (round+1)*tasks, func(e middleware.Event) bool { return e.Kind == middleware.Released })
			<-time.After(2 * time.Second)
		}
		got := sent.counts()
		if n := got["fetch"]; n > tasks+tasks/2 { // one for each task takes its lock; and the first ones: most come with the locks of others
			r.Errorf("%d fetches for %d tasks", n, tasks)
		}
		delete(got, "fetch")
		if n := got["done"]; n == 0 || n > tasks { // one command may end several runs, and releases, too
			r.Errorf("%d acknowledgements for %d tasks", n, tasks)
		}
		delete(got, "done")
		want := map[string]int{"enqueue": tasks}
		if !maps.Equal(got, want) {
			r.Errorf("%v for %d tasks, want %v", got, tasks, want)
		}
	})
}

func TestAKeyThatIsHeldForLongMakesNoHotLoop(t *testing.T) {
	t.Parallel()
	bubble(t, func(r *rig) {
		const tasks, minutes = heldTasks, longMinutes
		lease := r.hold("order:1")
		r.serve(r.options(parkAlways()), asynq.Config{Concurrency: 4, TaskCheckInterval: time.Second}, func(context.Context, *asynq.Task) error { return nil })
		for range tasks {
			r.enqueue(payload{Key: "order:1"}, asynq.MaxRetry(1))
		}
		sent := r.countCommands(nil)
		<-time.After(minutes * time.Minute)
		got := sent.counts()
		refused := map[string]int{}
		r.events.mu.Lock()
		for _, e := range r.events.all {
			if e.Kind == middleware.Ended {
				refused[e.Task.ID]++
			}
		}
		r.events.mu.Unlock()
		// The holder's lease ends 20 to 30 s from any look, and a task looks again a second after that end.
		const most = minutes*60/21 + 1
		for id, n := range refused {
			if n > most || n < 2 {
				r.Errorf("task %s tried to run %d times in %d minutes, want 2 to %d", id, n, minutes, most)
			}
		}
		total := 0
		for name, n := range got {
			total += n
			r.Logf("%-16s %.2f/s", name, float64(n)/(minutes*60))
		}
		// A look costs fetch, acquire, park, and looking behind those before it; the holder renews every 10 s.
		if limit := tasks*most*5 + minutes*6 + 1; total > limit {
			r.Errorf("%d commands in %d minutes for %d waiters, want at most %d", total, minutes, tasks, limit)
		}
		r.Logf("%.1f commands/s for %d waiters of a key that is held for long", float64(total)/(minutes*60), tasks)
		if len(refused) != tasks {
			r.Errorf("%d tasks were refused, want %d", len(refused), tasks)
		}
		r.giveBack(lease)
		r.events.await(r, tasks, func(e middleware.Event) bool { return e.Kind == middleware.Released })
	})
}
