package middleware_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/railtoken/railtoken/internal/leasing"
	"github.com/railtoken/railtoken/middleware"
)

func TestAStrategyAcceptsWhatItKnows(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		strategy interface{ Validate() error }
		ok       bool
	}{
		"the first outcome":  {middleware.FailFast{Outcome: middleware.Archive}, true},
		"the last outcome":   {middleware.FailFast{Outcome: middleware.Complete}, true},
		"none before":        {middleware.FailFast{Outcome: middleware.Archive - 1}, false},
		"none behind":        {middleware.FailFast{Outcome: middleware.Park}, false},
		"the first order":    {middleware.Requeue{Order: middleware.BestEffort}, true},
		"the last order":     {middleware.Requeue{Order: middleware.StrictFIFO}, true},
		"no order before":    {middleware.Requeue{Order: middleware.BestEffort - 1}, false},
		"no order behind":    {middleware.Requeue{Order: middleware.StrictFIFO + 1}, false},
		"the least delay":    {middleware.Requeue{Delay: leasing.LeastDuration}, true},
		"less than that":     {middleware.Requeue{Delay: leasing.LeastDuration - 1}, false},
		"the least grace":    {middleware.Supersede{Grace: leasing.LeastDuration}, true},
		"less grace":         {middleware.Supersede{Grace: leasing.LeastDuration - 1}, false},
		"the least wait":     {middleware.Wait{Max: leasing.LeastDuration}, true},
		"less of a wait":     {middleware.Wait{Margin: leasing.LeastDuration - 1}, false},
		"a queue":            {middleware.Requeue{Queue: "slow"}, true},
		"a blank queue":      {middleware.Requeue{Queue: " "}, false},
		"no attempt":         {middleware.Wait{Attempts: -1}, false},
		"one attempt":        {middleware.Wait{Attempts: 1}, true},
		"a bad one behind":   {middleware.Wait{}.Then(middleware.Requeue{Queue: " "}), false},
		"a grace":            {middleware.Supersede{Grace: time.Second}, true},
		"a grace before now": {middleware.Supersede{Grace: -1}, false},
	} {
		if err := tt.strategy.Validate(); (err == nil) != tt.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestARequeueIsFoundAtTheEndOfAChain(t *testing.T) {
	t.Parallel()
	requeue := middleware.Requeue{Order: middleware.FIFO, Queue: "slow"}
	for name, tt := range map[string]struct {
		strategy middleware.Strategy
		ok       bool
	}{
		"itself": {requeue, true}, "a pointer": {&requeue, true}, "after a wait": {middleware.Wait{}.Then(&requeue), true},
		"fail fast": {middleware.FailFast{}, false}, "after a wait, none": {middleware.Wait{}.Then(middleware.FailFast{}), false},
	} {
		got, ok := middleware.RequeueOf(tt.strategy)
		if ok != tt.ok || ok && (got.Order != requeue.Order || got.Queue != requeue.Queue) {
			t.Errorf("%s: %+v, %v", name, got, ok)
		}
	}
}

func TestNamesOfOrdersAndOutcomes(t *testing.T) {
	t.Parallel()
	for want, value := range map[string]fmt.Stringer{
		"best effort": middleware.BestEffort, "strict FIFO": middleware.StrictFIFO, "Order(-1)": middleware.Order(-1),
		"Order(3)": middleware.Order(3), "archived": middleware.Archive, "not enqueued": middleware.NotEnqueued,
		"Outcome(-1)": middleware.Outcome(-1), "Outcome(7)": middleware.Outcome(7),
	} {
		if got := value.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
