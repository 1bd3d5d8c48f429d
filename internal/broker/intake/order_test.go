package intake

import (
	"fmt"
	"math"
	"testing"
)

// asynq shuffles the names of the queues, each as often as its priority, and looks at them in the order in which they
// come first.
func TestQueuesComeFirstByTheirWeights(t *testing.T) {
	t.Parallel()
	const draws = 60_000
	o := newOrder(map[string]int{"critical": 6, "default": 3, "low": 1}, false)
	first, second := map[string]int{}, map[string]int{}
	for range draws {
		order := o.next()
		if len(order) != 3 || order[0] == order[1] || order[1] == order[2] || order[0] == order[2] {
			t.Fatalf("the order is %q", order)
		}
		first[o.names[order[0]-1]]++
		if o.names[order[0]-1] == "critical" {
			second[o.names[order[1]-1]]++
		}
	}
	for name, share := range map[string]float64{"critical": 0.6, "default": 0.3, "low": 0.1} {
		if got := float64(first[name]) / draws; math.Abs(got-share) > 0.02 {
			t.Errorf("%s comes first in %.3f, want %.3f", name, got, share)
		}
	}
	if got := float64(second["default"]) / float64(first["critical"]); math.Abs(got-0.75) > 0.02 {
		t.Errorf("after critical comes default in %.3f, want 0.75", got)
	}
}

func TestWithStrictPriorityTheOrderIsFixed(t *testing.T) {
	t.Parallel()
	o := newOrder(map[string]int{"b": 3, "a": 1, "c": 6}, true)
	for range 10 {
		if got := o.next(); got != "\x01\x02\x03" || o.names[0] != "c" || o.names[1] != "b" || o.names[2] != "a" {
			t.Fatalf("%q of %v", got, o.names)
		}
	}
}

// With lanes the fixed order is cut to those queues that may have tasks. Each position is one byte, also above 127.
func TestAFixedOrderIsCutForManyQueues(t *testing.T) {
	t.Parallel()
	for _, n := range []int{2, 64, 65, 128, 129, MostQueues} {
		queues := map[string]int{}
		for i := range n {
			queues[fmt.Sprintf("%03d", i)] = 1
		}
		o := newOrder(queues, true)
		for some, want := range map[queueSet]string{
			^queueSet(0): o.fixed, setOf(0): o.fixed[:1], setOf(1): o.fixed[1:2], setOf(n - 1): o.fixed[min(n-1, 63):],
		} {
			if got := o.orders(1, some); len(got) != 1 || got[0] != want {
				t.Errorf("of %d queues, cut to %b: %q, want %q", n, some, got, want)
			}
		}
	}
}

// asynq leaves a queue alone whose priority is not above zero.
func TestAQueueWithoutPriorityIsNotLookedAt(t *testing.T) {
	t.Parallel()
	for _, strict := range []bool{false, true} {
		o := newOrder(map[string]int{"a": 3, "b": 1, "off": 0, "negative": -2}, strict)
		if order := o.next(); len(order) != 2 || len(o.names) != 2 {
			t.Errorf("with StrictPriority %t: %q of %v", strict, order, o.names)
		}
	}
}

// On a Redis Cluster a fetch looks at one queue, and must not fill all slots with tasks of little weight.
func TestAQueueThatIsLookedAtAloneTakesItsShare(t *testing.T) {
	t.Parallel()
	queues := map[string]int{"high": 9, "low": 1}
	o := newOrder(queues, false)
	for queue, want := range map[string]int{"high": 901, "low": 101} {
		if n := o.share(queue, 1001); n < want-60 || n > want+60 {
			t.Errorf("%s has %d of 1001 tasks, want about %d", queue, n, want)
		}
		if n := o.share(queue, 1); n != 1 {
			t.Errorf("%s has %d tasks of one", queue, n)
		}
		if n := newOrder(queues, true).share(queue, 50); n != 50 {
			t.Errorf("with StrictPriority %s has %d of 50 tasks", queue, n)
		}
	}
	if n := o.share("other", 50); n != 1 {
		t.Errorf("a queue that is not the server's has %d tasks", n)
	}
}

// On a Redis Cluster a call with acknowledgements reaches one queue alone. It must not fill slots with its tasks for which another
// queue comes first.
func TestAcknowledgementsFetchForTheSlotsOfTheirQueue(t *testing.T) {
	t.Parallel()
	queues := map[string]int{"high": 9, "low": 1}
	weighted, strict := newOrder(queues, false), newOrder(queues, true)
	for queue, want := range map[string]int{"high": 900, "low": 100} {
		if n := weighted.first(queue, 1000); n < want-60 || n > want+60 {
			t.Errorf("%s comes first for %d of 1000 tasks, want about %d", queue, n, want)
		}
		if n := strict.first(queue, 50); n != map[string]int{"high": 50}[queue] {
			t.Errorf("with StrictPriority %s comes first for %d of 50 tasks", queue, n)
		}
	}
	for _, o := range []*order{weighted, strict} {
		if n := o.first("other", 50); n != 0 {
			t.Errorf("a queue that is not the server's comes first for %d tasks", n)
		}
	}
}
