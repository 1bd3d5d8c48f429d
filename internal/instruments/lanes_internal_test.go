package instruments

import (
	"slices"
	"testing"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/middleware"
)

// Otherwise each queue would have 64 series of each counter.
func TestTheLanesOfAQueueAreOneSeries(t *testing.T) {
	t.Parallel()
	queues := map[string]bool{}
	events := NewEvents(func(i *Instrument, labels []string) int {
		if n := slices.Index(i.Labels, "queue"); n >= 0 {
			queues[labels[n]] = true
		}
		return 0
	})
	for _, queue := range []string{"orders", "orders@17-1Mk", "orders@63-00Z"} {
		task := delayqueue.Task{Queue: queue, ID: "a"}
		for _, kind := range []middleware.EventKind{middleware.Acquired, middleware.Released, middleware.Refused} {
			events.Append(nil, &middleware.Event{Kind: kind, Type: "audit", Task: task, Next: task})
		}
	}
	if len(queues) != 1 || !queues["orders"] {
		t.Errorf("the series are of %v", queues)
	}
}
