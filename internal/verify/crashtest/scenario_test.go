package crashtest_test

import (
	"time"

	"github.com/railtoken/railtoken/middleware"
)

// scenario is what a worker has to do while it is stopped at one step after another. To add one is to add an entry to the table.
type scenario struct {
	name string
	settings
	plan
	number int // in the table
	// next is how the process works that comes after the one that was stopped; as that one when nil.
	next *settings
	jobs []job
	// order is that of the settings, which are for one key per task then. The producer is stopped too, as for jobs that are parked as they are enqueued.
	order middleware.Order
	// mate has another process work beside the one that is stopped.
	mate bool
	// follows says that tasks wait in memory for their keys.
	follows bool
	// within bounds a run without a fault: nobody waits for a timer who could have been woken.
	within time.Duration
	// steps are those that must be among the steps at which the process was stopped.
	steps []string
}

// always returns the steps of every scenario.
func (sc scenario) always() []string {
	steps := []string{"acquire", "asynq/fetch", "asynq/done", effect}
	if !sc.Fused { // otherwise the acknowledgement releases
		steps = append(steps, "release")
	}
	return steps
}

// Queues of the scenarios.
var (
	own  = map[string]int{"default": 4}
	both = map[string]int{"default": 4, "waiting": 1, "siding": 1}
)

// parkedAtOnce are jobs that wait for their key from the start.
var parkedAtOnce = []job{
	{ID: "holder", Hold: 6 * time.Second, Retries: 5},
	{ID: "first", At: 2 * time.Second, Hold: time.Second, Retries: 5, Waits: true},
	{ID: "second", At: 3 * time.Second, Hold: time.Second, Retries: 5, Waits: true},
}

var scenarios = []scenario{
	{
		name: "park and wake", settings: settings{Queues: own},
		jobs: []job{
			{ID: "holder", Hold: 12 * time.Second, Retries: 5},    // its lease is renewed after 10 s
			{ID: "first", At: 3 * time.Second, Hold: time.Second}, // its first attempt is its last
			{ID: "second", At: 6 * time.Second, Hold: time.Second, Retries: 5},
		},
		within: 24 * time.Second,
		steps:  []string{"park", "wake", "renew"},
	},
	{
		name: "on a Cluster", settings: settings{Queues: own, Cluster: true},
		jobs: []job{
			{ID: "holder", Hold: 6 * time.Second, Retries: 5},
			{ID: "first", At: 2 * time.Second, Hold: time.Second},
			{ID: "second", At: 3 * time.Second, Hold: time.Second, Retries: 5},
			{ID: "third", At: 4 * time.Second, Hold: time.Second, Retries: 5},
		},
		within: 18 * time.Second,
		steps:  []string{"suspend", "enter", "join", "defer", "leave", "discard", "promote", "hasten"},
	},
	{
		name: "two keys on a Cluster", settings: settings{Queues: own, Cluster: true},
		jobs: []job{
			{ID: "one", Keys: []string{"a"}, Hold: 6 * time.Second, Retries: 5},
			{ID: "two", Keys: []string{"a", "b"}, At: 2 * time.Second, Hold: 2 * time.Second, Retries: 5},
			// The second task collects its keys, and waits for this one when its time is up.
			{ID: "three", Keys: []string{"b"}, At: 4 * time.Second, Hold: 30 * time.Second, Retries: 5},
		},
		within: time.Minute,
		steps:  []string{"suspend", "enter", "join", "discard", "promote", "stand"},
	},
	{
		name: "two keys", settings: settings{Queues: own},
		jobs: []job{
			{ID: "one", Keys: []string{"a"}, Hold: 6 * time.Second, Retries: 5},
			{ID: "two", Keys: []string{"a", "b"}, At: 2 * time.Second, Hold: 2 * time.Second, Retries: 5},
			{ID: "three", Keys: []string{"b"}, At: 4 * time.Second, Hold: 6 * time.Second, Retries: 5},
		},
		within: 24 * time.Second,
		steps:  []string{"park", "wake"},
	},
	{
		name: "a failure and a retry", settings: settings{Queues: own},
		jobs: []job{
			{ID: "holder", Hold: 4 * time.Second, Fails: 1, Retries: 5},
			{ID: "first", At: 2 * time.Second, Hold: time.Second, Fails: 1, Retries: 5},
		},
		within: 20 * time.Second,
		steps:  []string{"park", "wake", "asynq/retry", "asynq/forward"},
	},
	{
		name: "the queue is another one afterwards", settings: settings{Queues: both, Strategy: middleware.Requeue{Queue: "waiting"}},
		next: &settings{Queues: both, Strategy: middleware.Requeue{Queue: "siding"}},
		jobs: []job{
			{ID: "holder", Hold: 6 * time.Second, Retries: 5},
			{ID: "first", At: 2 * time.Second, Hold: 2 * time.Second, Fails: 1, Retries: 5},
		},
		within: 26 * time.Second,
		steps:  []string{"park", "wake"},
	},
	{
		// As while a fleet changes its configuration: what one server has wait there, the other one has wait elsewhere.
		name: "there and away again", settings: settings{
			Queues: map[string]int{"default": 1, "siding": 1}, Strategy: middleware.Requeue{Queue: "waiting"},
			Beside: &settings{Queues: map[string]int{"waiting": 1}, Strategy: middleware.Requeue{Queue: "siding"}},
		},
		jobs: []job{
			{ID: "holder", Hold: 4 * time.Second, Retries: 5},
			{ID: "mover", At: 2 * time.Second, Hold: 2 * time.Second, Fails: 1, Retries: 5},
			{ID: "next", At: 5 * time.Second, Hold: 8 * time.Second, Retries: 5},
		},
		within: 30 * time.Second,
		steps:  []string{"park", "wake", "asynq/retry", "asynq/forward"},
	},
	{
		name: "on its last attempt and due soon", settings: settings{Queues: own, Strategy: middleware.Requeue{Delay: time.Second}},
		jobs: []job{
			{ID: "holder", Hold: 3 * time.Second},
			{ID: "first", At: 2 * time.Second, Hold: time.Second},
		},
		within: 14 * time.Second,
		steps:  []string{"park", "wake"},
	},
	{
		name: "locks that come and go with the tasks", settings: settings{Queues: own, Fused: true},
		jobs: []job{
			{ID: "teacher", Hold: time.Second, Retries: 5, Record: true}, // the process learns that its keys are the recorded ones
			{ID: "first", At: 3 * time.Second, Hold: 2 * time.Second, Retries: 5, Record: true},
			{ID: "second", At: 4 * time.Second, Hold: time.Second, Record: true}, // parks
			{ID: "both", Keys: []string{"a", "k"}, At: 8 * time.Second, Hold: time.Second, Retries: 5, Record: true},
			{ID: "fails", Keys: []string{"b"}, At: 8 * time.Second, Hold: time.Second, Fails: 1, Retries: 5, Record: true},
			{ID: "unrecorded", Keys: []string{"c"}, At: 9 * time.Second, Hold: time.Second, Retries: 5},
		},
		within: 24 * time.Second,
		steps:  []string{"park", "asynq/retry", "asynq/forward"}, // the acknowledgements wake
	},
	{
		name: "behind others of a held key", settings: settings{Queues: own, Fused: true, Strategy: middleware.Requeue{}},
		jobs: []job{
			{ID: "teacher", Hold: time.Second, Retries: 5, Record: true},
			{ID: "holder", At: 3 * time.Second, Hold: 4 * time.Second, Retries: 5, Record: true},
			{ID: "first", At: 4 * time.Second, Hold: time.Second, Record: true},  // its server parks it
			{ID: "second", At: 5 * time.Second, Hold: time.Second, Record: true}, // the fetch parks it and the third
			{ID: "third", At: 5 * time.Second, Hold: time.Second, Retries: 5, Record: true},
		},
		within: 24 * time.Second,
		steps:  []string{"park"},
	},
	{
		name: "locks on a Redis of their own", settings: settings{Queues: own, Apart: true},
		jobs: []job{
			{ID: "holder", Hold: 6 * time.Second},
			{ID: "first", At: 2 * time.Second, Hold: time.Second},
			{ID: "second", At: 4 * time.Second, Hold: time.Second, Retries: 5},
		},
		within: 18 * time.Second,
		steps:  []string{"park", "wake"},
	},
	{
		// They lose their patience after 10 s, and come back 10 s later.
		name: "locks out of reach", settings: settings{Queues: own, NoLocks: [2]time.Duration{time.Second, 14 * time.Second}},
		jobs: []job{
			{ID: "first", At: 2 * time.Second, Hold: time.Second},
			{ID: "second", At: 3 * time.Second, Hold: time.Second, Retries: 5},
		},
		within: 35 * time.Second,
		steps:  []string{"postpone", "asynq/forward"},
	},
	{
		// Each holds the key briefly: the next one waits in memory.
		name: "one after the other in memory", settings: settings{Queues: own, Eager: true, Fused: true}, follows: true,
		jobs: []job{
			{ID: "teacher", Hold: 60 * time.Millisecond, Retries: 5, Record: true},
			{ID: "one", At: time.Second, Hold: 60 * time.Millisecond, Retries: 5, Record: true},
			{ID: "two", At: time.Second, Hold: 60 * time.Millisecond, Record: true},
			{ID: "three", At: time.Second, Hold: 60 * time.Millisecond, Retries: 5, Record: true},
			{ID: "four", At: 1050 * time.Millisecond, Hold: 60 * time.Millisecond, Retries: 5, Record: true},
			{ID: "five", At: 1050 * time.Millisecond, Hold: 600 * time.Millisecond, Retries: 5, Record: true}, // the next one waits too long
			{ID: "six", At: 1100 * time.Millisecond, Hold: 60 * time.Millisecond, Retries: 5, Record: true},
		},
		within: 6 * time.Second,
		steps:  []string{"park"},
	},
	{
		name: "parked as they are enqueued", settings: settings{Queues: own}, jobs: parkedAtOnce, within: 18 * time.Second,
		steps: []string{"wake", ofProducer + "acquire", ofProducer + "enqueue", ofProducer + "suspend", ofProducer + "enter", ofProducer + "join"},
	},
	{
		name: "parked as they are enqueued on a Cluster", settings: settings{Queues: own, Cluster: true}, jobs: parkedAtOnce, within: 18 * time.Second,
		steps: []string{"promote", ofProducer + "acquire", ofProducer + "enqueue", ofProducer + "suspend", ofProducer + "enter", ofProducer + "join"},
	},
	{
		name: "two processes", settings: settings{Queues: own}, mate: true,
		jobs: []job{
			{ID: "one", Hold: 3 * time.Second, Retries: 5},
			{ID: "two", At: time.Second, Hold: time.Second, Retries: 5},
			{ID: "three", At: 1500 * time.Millisecond, Hold: time.Second, Retries: 5},
			{ID: "four", At: 2 * time.Second, Hold: time.Second, Retries: 5},
			{ID: "five", At: 2500 * time.Millisecond, Hold: time.Second, Retries: 5},
		},
		within: 24 * time.Second,
		steps:  []string{"park", "wake"},
	},
}
