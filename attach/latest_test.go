package attach_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/attach"
	"github.com/railtoken/railtoken/internal/line"
	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/middleware"
)

// prices are tasks of one key of which only the latest payload is to run.
type prices struct {
	*rig
	producer *attach.Producer
	attached *attach.Attached
	began    chan string // payloads of runs
	results  chan error  // of these
	heard    chan middleware.Event
	order    middleware.Order
}

func ofArticle(context.Context, *asynq.Task) ([]string, error) { return []string{"article:1"}, nil }

// onPrices runs a test in each order and each place where tasks and locks may be.
func onPrices(t *testing.T, test func(p *prices)) {
	t.Helper()
	t.Parallel()
	for _, order := range []middleware.Order{middleware.BestEffort, middleware.FIFO, middleware.StrictFIFO} {
		for name, place := range map[string]struct {
			order     middleware.Order
			locker    func(t *testing.T) *locking.Single
			cluster   bool
			namespace string
		}{
			"one Redis":                {order: order},
			"locks elsewhere":          {order: middleware.FIFO, locker: elsewhere},
			"a Cluster":                {order: middleware.StrictFIFO, cluster: true},
			"a namespace":              {order: middleware.BestEffort, namespace: "shop-a"},
			"a namespace on a Cluster": {order: middleware.FIFO, cluster: true, namespace: "shop-a"},
		} {
			if order != place.order && !everyPair {
				continue
			}
			t.Run(fmt.Sprint(order, ", ", name), func(t *testing.T) {
				t.Parallel()
				var client redis.UniversalClient
				if place.cluster {
					client = redistest.StartCluster(t, 3).Client(t)
				} else {
					client = redistest.Start(t).Client(t)
				}
				p := &prices{began: make(chan string, 10), results: make(chan error, 10), heard: make(chan middleware.Event, 100), order: order}
				opts := attach.Options{
					Strategy: middleware.Requeue{Order: order}, Namespace: place.namespace, NamespaceTasks: place.namespace != "",
					Observer: func(_ context.Context, e middleware.Event) {
						if e.Kind == attach.Superseded {
							p.heard <- e
						}
					},
				}
				if place.locker != nil {
					opts.Locker = place.locker(t)
				}
				var err error
				p.attached, err = attach.New(client, asynq.Config{
					Concurrency: 4, LogLevel: asynq.FatalLevel, DelayedTaskCheckInterval: 100 * time.Millisecond,
					RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return time.Second },
				}, opts)
				ok(t, err)
				t.Cleanup(func() { ok(t, p.attached.Close()) })
				p.rig = &rig{T: t, inspect: asynq.NewInspectorFromRedisClient((*line.Engine)(p.attached.Queue()).Client())}
				p.producer = p.attached.Producer(map[string]middleware.KeyFunc{"price": ofArticle})
				test(p)
			})
		}
	}
}

// run starts the server.
func (p *prices) run() {
	p.Helper()
	p.serve(p.attached.Client(), p.attached.Config(), p.attached.Lock(ofArticle)(asynq.HandlerFunc(func(_ context.Context, task *asynq.Task) error {
		p.began <- string(task.Payload())
		return <-p.results
	})))
}

// put enqueues a price.
func (p *prices) put(price string, l attach.Latest, opts ...asynq.Option) *asynq.TaskInfo {
	p.Helper()
	info, err := p.producer.EnqueueContext(p.Context(), asynq.NewTask("price", []byte(price)), append(opts, l)...)
	ok(p.T, err)
	return info
}

// replaces checks that a price takes the place of the one that waits as a task.
func (p *prices) replaces(waiting *asynq.TaskInfo, price string, l attach.Latest) {
	p.Helper()
	if info := p.put(price, l); info.ID != waiting.ID {
		p.Errorf("price %s is task %s beside task %s", price, info.ID, waiting.ID)
	}
	if e := receive(p, p.heard); e.Task.ID != waiting.ID || e.Next != e.Task || e.Err != nil {
		p.Errorf("the event of %s is %+v", price, e)
	}
}

// runs checks which price runs next, and lets its run end.
func (p *prices) runs(price string, result error) {
	p.Helper()
	if got := receive(p, p.began); got != price {
		p.Errorf("price %s runs, want %s", got, price)
	}
	p.results <- result
}

func TestTheLatestPayloadTakesThePlaceOfOneThatWaits(t *testing.T) {
	onPrices(t, func(p *prices) {
		now, later := attach.Latest{}, attach.Latest{Quiet: time.Hour}
		first := p.put("1", later)
		p.replaces(first, "2", later)
		if got := p.settled(first, asynq.TaskStateScheduled); time.Until(got.NextProcessAt) < time.Hour-time.Minute || string(got.Payload) != "2" {
			p.Errorf("scheduled is %s in %v", got.Payload, time.Until(got.NextProcessAt))
		}
		p.replaces(first, "3", now)
		p.settled(first, asynq.TaskStatePending)
		p.replaces(first, "4", later) // what was due stays so
		p.settled(first, asynq.TaskStatePending)

		held, err := p.attached.Locker().Acquire(p.Context(), []string{"article:1"}, locking.Options{})
		ok(p.T, err)
		p.run()
		p.settled(first, asynq.TaskStateRetry)
		p.replaces(first, "5", later) // it waits for its key, and keeps its place
		if got := p.settled(first, asynq.TaskStateRetry); string(got.Payload) != "5" || got.LastErr != line.WaitText {
			p.Errorf("parked is %s, with %q", got.Payload, got.LastErr)
		}
		ok(p.T, held.Release(p.Context()))
		p.runs("5", errors.New("fails"))
		p.settled(first, asynq.TaskStateRetry)
		p.replaces(first, "6", now) // after a failure
		p.runs("6", nil)

		p.until("it is done", func() bool {
			_, err := p.inspect.GetTaskInfo("default", first.ID)
			return errors.Is(err, asynq.ErrTaskNotFound)
		})
		if next := p.put("7", now); next.ID == first.ID {
			p.Error("a task that is done comes back")
		}
		p.runs("7", nil)
		if len(p.heard)+len(p.began) > 0 {
			p.Errorf("%d events and %d runs are too many", len(p.heard), len(p.began))
		}
	})
}

// Its run has begun, so the new payload needs another one. The old one must not run after it.
func TestAnOlderPayloadRunsNoMoreOnceANewerOneHasCome(t *testing.T) {
	onPrices(t, func(p *prices) {
		p.run()
		old := p.put("old", attach.Latest{}, asynq.Retention(time.Hour))
		if got := receive(p, p.began); got != "old" {
			p.Fatalf("price %s runs", got)
		}
		newest := p.put("new", attach.Latest{}, asynq.Retention(time.Hour))
		if newest.ID == old.ID {
			p.Fatal("a run gets another payload")
		}
		p.results <- errors.New("fails")
		if p.order == middleware.StrictFIFO { // it is before the new one, whatever it takes
			p.runs("old", nil)
		}
		p.runs("new", nil)
		p.settled(newest, asynq.TaskStateCompleted)
		if p.order == middleware.StrictFIFO {
			p.settled(old, asynq.TaskStateCompleted)
			return
		}
		got := p.settled(old, asynq.TaskStateCompleted)
		if _, err := p.producer.Wait(p.Context(), old); !errors.Is(err, attach.ErrSuperseded) {
			p.Errorf("who waits for the older one gets %v", err)
		}
		if want := "railtoken: superseded by task default/"; !strings.HasPrefix(string(got.Result), want) || !strings.HasSuffix(string(got.Result), newest.ID) {
			p.Errorf("its result is %q", got.Result)
		}
		e := receive(p, p.heard)
		if e.Task.ID != old.ID || e.Next.ID != newest.ID || e.Err != nil {
			p.Errorf("the event is %+v", e)
		}
		if len(p.began) > 0 {
			p.Errorf("price %s runs once more", <-p.began)
		}
	})
}

func TestLatestIsRefusedWithTheReason(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p, err := attach.NewProducer(r.client, attach.ProducerOptions{})
	ok(t, err)
	t.Cleanup(func() { ok(t, p.Close()) })
	keys, now, task := attach.Keys("article:1"), attach.Latest{}, asynq.NewTask("price", nil)
	for name, tt := range map[string]struct {
		task   *asynq.Task
		opts   []asynq.Option
		remedy string
	}{
		"no keys":             {task, []asynq.Option{now}, "give them with Keys"},
		"an empty key":        {task, []asynq.Option{attach.Keys(""), now}, "empty"},
		"negative Quiet":      {task, []asynq.Option{keys, attach.Latest{Quiet: -1}}, "give 0, to run at once"},
		"a pointer":           {task, []asynq.Option{keys, &attach.Latest{Quiet: -1}}, "give 0, to run at once"},
		"negative Most":       {task, []asynq.Option{keys, attach.Latest{Most: -1}}, "or 0 for 10 x Quiet"},
		"Most below Quiet":    {task, []asynq.Option{keys, attach.Latest{Quiet: time.Minute, Most: time.Second}}, "give at least Quiet"},
		"Most of two years":   {task, []asynq.Option{keys, attach.Latest{Quiet: time.Minute, Most: 2 * 365 * 24 * time.Hour}}, "at most 8760h"},
		"the longest Quiet":   {task, []asynq.Option{keys, attach.Latest{Quiet: 1<<63 - 1}}, "to 8760h"},
		"Unique":              {task, []asynq.Option{keys, now, asynq.Unique(time.Hour)}, "leave out asynq.Unique"},
		"Unique of the task":  {asynq.NewTask("price", nil, asynq.Unique(time.Hour)), []asynq.Option{keys, now}, "leave out asynq.Unique"},
		"TaskID":              {task, []asynq.Option{keys, now, asynq.TaskID("a")}, "TaskID"},
		"TaskID of the task":  {asynq.NewTask("price", nil, asynq.TaskID("a")), []asynq.Option{keys, now}, "TaskID"},
		"Group":               {task, []asynq.Option{keys, now, asynq.Group("g")}, "Group"},
		"Group of the task":   {asynq.NewTask("price", nil, asynq.Group("g")), []asynq.Option{keys, now}, "Group"},
		"ProcessIn":           {task, []asynq.Option{keys, now, asynq.ProcessIn(time.Hour)}, "Quiet says when it runs"},
		"ProcessAt":           {task, []asynq.Option{keys, now, asynq.ProcessAt(time.Now().Add(time.Hour))}, "Quiet says when it runs"},
		"ProcessIn of a task": {asynq.NewTask("price", nil, asynq.ProcessIn(time.Hour)), []asynq.Option{keys, now}, "Quiet says when it runs"},
		"WhenHeld":            {task, []asynq.Option{keys, now, attach.WhenHeld(middleware.FailFast{})}, "use one of them"},
	} {
		if _, err := p.EnqueueContext(t.Context(), tt.task, tt.opts...); err == nil || !strings.Contains(err.Error(), tt.remedy) {
			t.Errorf("%s: error %v, want one with %q", name, err, tt.remedy)
		}
	}
	if _, err := p.EnqueueInOrder(t.Context(), "article:1", task, now); err == nil || !strings.Contains(err.Error(), "leave out Latest") {
		t.Errorf("in order: error %v", err)
	}
	if all := r.client.Keys(t.Context(), "asynq:*:t:*").Val(); len(all) > 0 {
		t.Errorf("%v were enqueued", all)
	}
}

// Keys in another order are the same keys. Another group is another task.
func TestWhatIsTheSameTaskForLatest(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p, err := attach.NewProducer(r.client, attach.ProducerOptions{})
	ok(t, err)
	t.Cleanup(func() { ok(t, p.Close()) })
	put := func(kind string, l attach.Latest, queue string, keys ...string) string {
		info, err := p.EnqueueContext(t.Context(), asynq.NewTask(kind, nil), attach.Keys(keys...), l, asynq.Queue(queue))
		ok(t, err)
		return info.ID
	}
	first := put("price", attach.Latest{}, "default", "a", "b")
	for want, ids := range map[bool][]string{
		true:  {put("price", attach.Latest{}, "default", "b", "a"), put("price", attach.Latest{Group: "price"}, "default", "a", "b", "a")},
		false: {put("price", attach.Latest{}, "default", "a"), put("stock", attach.Latest{}, "default", "a", "b"), put("price", attach.Latest{}, "other", "a", "b"), put("price", attach.Latest{Group: "p"}, "default", "a", "b")},
	} {
		for i, id := range ids {
			if (id == first) != want {
				t.Errorf("number %d is the same task: %v, want %v", i, !want, want)
			}
		}
	}
}

// It was refused, and will not run. So the older one still must.
func TestAnOlderPayloadRunsAgainIfNoNewerOneHasRun(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a := r.attach(asynq.Config{Concurrency: 2, RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return time.Second }},
		attach.Options{Strategy: middleware.FailFast{}})
	began, results := make(chan string, 4), make(chan error, 4)
	r.serve(a.Client(), a.Config(), a.Lock(ofArticle)(asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
		began <- string(task.Payload())
		return <-results
	})))
	p := a.Producer(nil)
	put := func(task *asynq.Task, opts ...asynq.Option) *asynq.TaskInfo {
		info, err := p.EnqueueContext(t.Context(), task, opts...)
		ok(t, err)
		return info
	}
	old := put(asynq.NewTask("price", []byte("old")), attach.Keys("article:1"), attach.Latest{})
	if got := receive(t, began); got != "old" {
		t.Fatalf("price %s runs", got)
	}
	newer := put(asynq.NewTask("price", []byte("new")), attach.Keys("article:1"), attach.Latest{})
	r.settled(newer, asynq.TaskStateArchived)
	results <- errors.New("fails")
	if got := receive(t, began); got != "old" {
		t.Errorf("price %s runs again", got)
	}
	// A handler may pass its headers on.
	info, err := r.inspect.GetTaskInfo("default", old.ID)
	ok(t, err)
	results <- nil
	r.until("the old one is done", func() bool { _, err := r.inspect.GetTaskInfo("default", old.ID); return err != nil })
	put(asynq.NewTaskWithHeaders("price", []byte("follow-up"), info.Headers))
	if got := receive(t, began); got != "follow-up" {
		t.Errorf("price %s runs", got)
	}
	results <- nil
}
