package pipeline_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/pipeline"
	"github.com/railtoken/railtoken/internal/testing/redistest"
)

// appends and its batch script add to a list. The server refuses the batch while the key "refuse" is there.
func appends() *pipeline.Script {
	batch := pipeline.NewBatchScript(`
		if redis.call('EXISTS', 'refuse') == 1 then return redis.error_reply('CROSSSLOT not together') end
		local replies, errors = {}, {}
		for i, key in ipairs(KEYS) do
			local done, reply = pcall(redis.call, 'RPUSH', key, ARGV[1 + i])
			replies[i] = done and reply
			if not done then errors[1], errors[2] = i, reply end
		end
		if errors[1] then replies[#KEYS + 1] = errors end
		return replies`, 1)
	return pipeline.NewScript(`return redis.call('RPUSH', KEYS[1], ARGV[1])`).In(batch, 0)
}

// pushes returns calls of a script on one list, for together.
func pushes(
	t testing.TB, n *pipeline.Server, script *pipeline.Script, key string, args ...any,
) (calls []func() <-chan *pipeline.Call) {
	for _, arg := range args {
		calls = append(calls, func() <-chan *pipeline.Call { return send(t, n, script, []string{key}, arg) })
	}
	return calls
}

func TestABatchIsOneCommandInOrder(t *testing.T) {
	t.Parallel()
	w := newWire(nil)
	client := redistest.Start(t).Client(t, deadlines)
	client.AddHook(w)
	n := pipeline.New(client, pipeline.Options{Leaders: 1})
	script := appends()
	for round := range 2 { // the server does not know the script in the first one
		calls := pushes(t, n, script, "list", "a", "b", "c")
		for i, c := range together(t, n, w, calls...) {
			if c.Err != nil || c.Reply != int64(3*round+i+1) {
				t.Errorf("call %d has reply %v, error %v", i, c.Reply, c.Err)
			}
		}
	}
	if got := client.LRange(t.Context(), "list", 0, -1).Val(); !slices.Equal(got, []string{"a", "b", "c", "a", "b", "c"}) {
		t.Errorf("the list is %v", got)
	}
	// Of the first call of together, and of the batch script; twice each, since the server has to learn them first.
	if got, want := w.sizes(), []int{1, 1, 1, 1, 1, 1}; !slices.Equal(got, want) || w.sources() != 2 {
		t.Errorf("round trips of %v commands with %d sources, want %v with 2", got, w.sources(), want)
	}
}

func TestABatchSharesItsPipeline(t *testing.T) {
	t.Parallel()
	w := newWire(nil)
	client := redistest.Start(t).Client(t, deadlines)
	client.AddHook(w)
	n := pipeline.New(client, pipeline.Options{Leaders: 1})
	script := appends()
	if err := client.Set(t.Context(), "text", 1, 0).Err(); err != nil {
		t.Fatal(err)
	}
	calls := pushes(t, n, script, "list", "a", "b")
	calls = append(calls, pushes(t, n, echo, "other", "x")...)
	calls = append(calls, pushes(t, n, script, "text", "c")...)
	calls = append(calls, pushes(t, n, script, "list", "d")...)
	var got []string
	for _, c := range together(t, n, w, calls...) {
		if c.Err != nil {
			got = append(got, c.Err.Error()[:9])
			continue
		}
		got = append(got, fmt.Sprint(c.Reply))
	}
	if want := []string{"1", "2", "x", "WRONGTYPE", "3"}; !slices.Equal(got, want) {
		t.Errorf("replies %v, want %v", got, want)
	}
	if last := w.sizes()[len(w.sizes())-1]; last != 1 { // the batch script, which the server did not know
		t.Errorf("the last round trip had %d commands", last)
	}
}

func TestARefusedBatchIsMadeCallByCall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, client := redistest.Virtual(t)
		w := newWire(nil)
		client.AddHook(w)
		n := pipeline.New(client, pipeline.Options{Leaders: 1})
		script := appends()
		added := 0
		push := func(commands int) {
			t.Helper()
			for i, c := range together(t, n, w, pushes(t, n, script, "list", "a", "b", "c")...) {
				added++
				if c.Err != nil || c.Reply != int64(added) {
					t.Errorf("call %d has reply %v, error %v; want %d", i, c.Reply, c.Err, added)
				}
			}
			if got := w.sizes()[len(w.sizes())-1]; got != commands {
				t.Errorf("the last round trip had %d commands, want %d", got, commands)
			}
		}
		push(1)
		client.Set(t.Context(), "refuse", 1, 0)
		push(3)
		client.Del(t.Context(), "refuse")
		trips := len(w.sizes())
		push(3) // it is not even tried
		if got := len(w.sizes()) - trips; got != 2 {
			t.Errorf("%d round trips, want 2", got)
		}
		time.Sleep(2 * time.Minute) // virtual
		push(1)
	})
}

func TestAnErrorOfEveryCallKeepsBatchesOn(t *testing.T) {
	t.Parallel()
	w := newWire(nil)
	redisServer := redistest.Start(t)
	client := redisServer.Client(t, deadlines)
	client.AddHook(w)
	n := pipeline.New(client, pipeline.Options{Leaders: 1})
	script := appends()
	admin := redisServer.Client(t)
	if err := admin.Do(t.Context(), "ACL", "SETUSER", "default", "resetkeys", "~other*").Err(); err != nil {
		t.Fatal(err)
	}
	for i, c := range together(t, n, w, pushes(t, n, script, "list", "a", "b", "c")...) {
		if !redis.HasErrorPrefix(c.Err, "NOPERM") {
			t.Errorf("call %d has reply %v, error %v; want NOPERM", i, c.Reply, c.Err)
		}
	}
	if err := admin.Do(t.Context(), "ACL", "SETUSER", "default", "allkeys").Err(); err != nil {
		t.Fatal(err)
	}
	for i, c := range together(t, n, w, pushes(t, n, script, "list", "a", "b", "c")...) {
		if c.Err != nil || c.Reply != int64(i+1) {
			t.Errorf("call %d has reply %v, error %v", i, c.Reply, c.Err)
		}
	}
	if last := w.sizes()[len(w.sizes())-1]; last != 1 {
		t.Errorf("the last round trip had %d commands, want the batch", last)
	}
}

// shares keeps what joint's commands share.
type shares struct {
	mu      sync.Mutex
	calls   []int    // of each command
	answers []string // to each command's Share
}

// joint returns a script that adds its arguments to a list. Each of its commands adds the number of its calls to the list
// "shared", and says how long that is then. It refuses "bad".
func joint(s *shares) *pipeline.Script {
	return pipeline.NewScript(`
		local replies, errors = {}, {}
		for i = 1, tonumber(ARGV[1]) do
			local arg = ARGV[i + 2]
			replies[i] = arg ~= 'bad' and {redis.call('RPUSH', KEYS[i], arg), #KEYS}
			if arg == 'bad' then
				errors[#errors + 1], errors[#errors + 2] = i, 'ERR bad'
			end
			if arg == 'worse' then
				return redis.error_reply('ERR worse')
			end
		end
		replies[#replies + 1] = redis.call('RPUSH', KEYS[#KEYS], ARGV[2])
		if #errors > 0 then replies[#replies + 1] = errors end
		return replies`).Joint(func(calls int) pipeline.Share {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.calls = append(s.calls, calls)
		return pipeline.Share{Keys: []string{"shared"}, Args: []any{calls}, Answered: func(reply any, err error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.answers = append(s.answers, fmt.Sprint(reply, " ", err))
		}}
	})
}

func TestACommandOfJointCallsHasAShare(t *testing.T) {
	t.Parallel()
	w := newWire(nil)
	client := redistest.Start(t).Client(t, deadlines)
	client.AddHook(w)
	n := pipeline.New(client, pipeline.Options{Leaders: 1})
	var s shares
	script := joint(&s)
	var calls []func() <-chan *pipeline.Call
	for _, arg := range []string{"a", "bad", "c"} {
		calls = append(calls, func() <-chan *pipeline.Call { return send(t, n, script, []string{"list"}, arg) })
	}
	var got []string
	for _, c := range together(t, n, w, calls...) {
		got = append(got, fmt.Sprint(c.Reply, c.Err))
	}
	if want := []string{"[1 4] <nil>", "<nil>ERR bad", "[2 4] <nil>"}; !slices.Equal(got, want) {
		t.Errorf("replies %q, want %q", got, want)
	}
	alone := func(arg, want string) {
		t.Helper()
		reply, err := n.Run(t.Context(), pipeline.NewCall(nil, script, []string{"list"}, arg))
		if got := fmt.Sprint(reply, err); got != want {
			t.Errorf("%s alone has %s, want %s", arg, got, want)
		}
	}
	alone("d", "[3 2] <nil>")
	alone("bad", "<nil>ERR bad")
	alone("worse", "<nil>ERR worse")
	s.mu.Lock()
	defer s.mu.Unlock()
	if want := []int{3, 1, 1, 1}; !slices.Equal(s.calls, want) {
		t.Errorf("commands of %v calls, want %v", s.calls, want)
	}
	if want := []string{"1 <nil>", "2 <nil>", "3 <nil>", "<nil> ERR worse"}; !slices.Equal(s.answers, want) {
		t.Errorf("the commands' shares have the answers %q, want %q", s.answers, want)
	}
}

// heldBack sends so many joint calls in one command, whose answer is late, beside so many single calls whose answers are
// late, too, and then others. It returns how many commands each round trip has from then on.
func heldBack(t *testing.T, calls, beside int, then ...*pipeline.Script) (sizes []int) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWire(func() error { return errors.New("no answer") })
		client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", ContextTimeoutEnabled: true, MaxRetries: -1})
		defer func() { _ = client.Close() }()
		client.AddHook(w)
		n := pipeline.New(client, pipeline.Options{Leaders: 2 + beside, Least: 3})
		all := make([]<-chan *pipeline.Call, 0, 2+beside+calls+len(then))
		w.holds(true)
		for range 2 + beside {
			all = append(all, send(t, n, echo, nil, "busy"))
			<-w.began
		}
		for range calls { // while all leaders are busy
			all = append(all, send(t, n, then[0], []string{"list"}, "first"))
		}
		w.goOn <- struct{}{}
		w.goOn <- struct{}{}
		<-w.began
		synctest.Wait()
		before := len(w.sizes())
		for _, script := range then {
			all = append(all, send(t, n, script, []string{"list"}, "call"))
			synctest.Wait()
		}
		w.holds(false)
		for range 2 + beside { // those that are held
			select {
			case <-w.began:
			default:
			}
		}
		close(w.goOn)
		for _, c := range all {
			<-c
		}
		sizes = w.sizes()[before:]
	})
	return sizes
}

func TestFewJointCallsWaitForThePipelineUnderWay(t *testing.T) {
	t.Parallel()
	script := joint(&shares{})
	for name, tt := range map[string]struct {
		underWay, beside int
		then             []*pipeline.Script
		want             []int // commands of each round trip
	}{
		"few beside many":      {5, 0, []*pipeline.Script{script, script}, []int{1}},
		"enough":               {5, 0, []*pipeline.Script{script, script, script, script}, []int{1, 1}},
		"one beside one":       {1, 0, []*pipeline.Script{script, script}, []int{1, 1}},
		"one that is no joint": {5, 0, []*pipeline.Script{script, echo, script}, []int{2, 1}},
		"beside three each":    {5, 1, []*pipeline.Script{script, script, script}, []int{1}},
		"beside two each":      {3, 1, []*pipeline.Script{script, script, script}, []int{1, 1}},
	} {
		if got := heldBack(t, tt.underWay, tt.beside, tt.then...); !slices.Equal(got, tt.want) {
			t.Errorf("%s: round trips of %v commands, want %v", name, got, tt.want)
		}
	}
}
