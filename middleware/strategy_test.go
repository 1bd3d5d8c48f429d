package middleware_test

import (
	"context"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"pgregory.net/rapid"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/middleware"
)

func TestStrategiesDecideByTheConflictAlone(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_000_000, 0)
	conflict := func(change func(*middleware.Conflict)) middleware.Conflict {
		c := middleware.Conflict{Key: "k", Holder: locking.Holder{Remaining: 20 * time.Second}, Attempt: 1, FirstAt: now, Now: now, MayWait: true}
		if change != nil {
			change(&c)
		}
		return c
	}
	parked := func(delay time.Duration) middleware.Decision {
		return middleware.Decision{Outcome: middleware.Park, Delay: delay}
	}
	park := parked(21 * time.Second)
	wait := middleware.Decision{Outcome: middleware.WaitInSlot, WaitUntil: now.Add(time.Second), Delay: 10 * time.Millisecond}
	after := func(delay time.Duration) middleware.Decision {
		return middleware.Decision{Outcome: middleware.WaitInSlot, WaitUntil: now.Add(time.Second), Delay: delay}
	}
	limits := delayqueue.Limits{Conflicts: 5}
	for name, tt := range map[string]struct {
		strategy middleware.Strategy
		conflict middleware.Conflict
		want     middleware.Decision
	}{
		"fail fast archives":        {middleware.FailFast{}, conflict(nil), middleware.Decision{Outcome: middleware.Archive}},
		"fail fast discards":        {middleware.FailFast{Outcome: middleware.Discard}, conflict(nil), middleware.Decision{Outcome: middleware.Discard}},
		"requeue until the TTL":     {middleware.Requeue{}, conflict(nil), park},
		"requeue with a delay":      {middleware.Requeue{Delay: time.Minute, Limits: limits}, conflict(nil), middleware.Decision{Outcome: middleware.Park, Delay: time.Minute, Limits: limits}},
		"requeue, endless holder":   {middleware.Requeue{}, conflict(func(c *middleware.Conflict) { c.Holder.Remaining = -1 }), parked(55 * time.Second)},
		"requeue, day-long holder":  {middleware.Requeue{}, conflict(func(c *middleware.Conflict) { c.Holder.Remaining = 24 * time.Hour }), parked(55 * time.Second)},
		"requeue, the longest":      {middleware.Requeue{}, conflict(func(c *middleware.Conflict) { c.Holder.Remaining = 54*time.Second - 1 }), parked(55*time.Second - 1)},
		"requeue, about to end":     {middleware.Requeue{}, conflict(func(c *middleware.Conflict) { c.Holder.Remaining = 0 }), parked(time.Second)},
		"supersede":                 {middleware.Supersede{Group: "g"}, conflict(nil), middleware.Decision{Outcome: middleware.Park, Delay: 5 * time.Second, Supersede: &middleware.Supersede{Group: "g"}}},
		"wait":                      {middleware.Wait{}, conflict(nil), wait},
		"wait is over":              {middleware.Wait{}, conflict(func(c *middleware.Conflict) { c.Now = now.Add(time.Second) }), park},
		"wait, not allowed":         {middleware.Wait{}, conflict(func(c *middleware.Conflict) { c.MayWait = false }), park},
		"wait, one attempt":         {middleware.Wait{Attempts: 1}, conflict(nil), park},
		"wait, attempts used up":    {middleware.Wait{Attempts: 3}, conflict(func(c *middleware.Conflict) { c.Attempt = 3 }), park},
		"wait, attempts left":       {middleware.Wait{Attempts: 3}, conflict(func(c *middleware.Conflict) { c.Attempt = 2 }), after(15 * time.Millisecond)},
		"wait, delays grow":         {middleware.Wait{}, conflict(func(c *middleware.Conflict) { c.Attempt = 3 }), after(22500 * time.Microsecond)},
		"wait, the largest delay":   {middleware.Wait{}, conflict(func(c *middleware.Conflict) { c.Attempt = 100 }), after(250 * time.Millisecond)},
		"wait, one delay":           {middleware.Wait{Initial: time.Second}, conflict(func(c *middleware.Conflict) { c.Attempt = 9 }), after(time.Second)},
		"wait ends by the deadline": {middleware.Wait{}, conflict(func(c *middleware.Conflict) { c.Deadline = now.Add(1500 * time.Millisecond) }), with(wait, now.Add(500*time.Millisecond))},
		"wait, deadline too near":   {middleware.Wait{}, conflict(func(c *middleware.Conflict) { c.Deadline = now.Add(time.Second) }), park},
		"wait then fail": {
			middleware.Wait{Max: time.Millisecond}.Then(middleware.FailFast{}), conflict(func(c *middleware.Conflict) { c.Now = now.Add(time.Millisecond) }),
			middleware.Decision{Outcome: middleware.Archive},
		},
		"wait then wait then requeue": {
			middleware.Wait{Max: time.Millisecond}.Then(middleware.Wait{}.Then(middleware.Requeue{})),
			conflict(func(c *middleware.Conflict) { c.Now = now.Add(time.Millisecond) }), wait,
		},
	} {
		if got := tt.strategy.Decide(tt.conflict); !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s: %+v, want %+v", name, got, tt.want)
		}
	}
}

func with(d middleware.Decision, until time.Time) middleware.Decision {
	d.WaitUntil = until
	return d
}

func TestAStrategyNeverWaitsPastItsLimits(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		first := time.Unix(1_000_000, 0)
		c := middleware.Conflict{
			FirstAt: first, Attempt: rapid.IntRange(1, 100).Draw(t, "attempt"), MayWait: rapid.Bool().Draw(t, "may"),
			Now: first.Add(time.Duration(rapid.Int64Range(0, int64(time.Minute)).Draw(t, "waited"))),
		}
		if rapid.Bool().Draw(t, "deadline") {
			c.Deadline = first.Add(time.Duration(rapid.Int64Range(0, int64(time.Minute)).Draw(t, "left")))
		}
		w := middleware.Wait{
			Max: time.Duration(rapid.Int64Range(0, int64(time.Minute)).Draw(t, "max")), Attempts: rapid.IntRange(0, 50).Draw(t, "attempts"),
			Margin: time.Duration(rapid.Int64Range(0, int64(2*time.Second)).Draw(t, "margin")),
		}
		d := w.Decide(c)
		if d.Outcome != middleware.WaitInSlot {
			return
		}
		most := w.Max
		if most == 0 {
			most = time.Second
		}
		switch {
		case !c.MayWait:
			t.Fatal("waits though it may not")
		case !d.WaitUntil.After(c.Now):
			t.Fatalf("waits until %v at %v: it would spin", d.WaitUntil, c.Now)
		case d.WaitUntil.After(first.Add(most)):
			t.Fatalf("waits %v, more than %v", d.WaitUntil.Sub(first), most)
		case !c.Deadline.IsZero() && !d.WaitUntil.Before(c.Deadline) && w.Margin > 0:
			t.Fatal("waits past the deadline")
		case w.Attempts > 0 && c.Attempt >= w.Attempts:
			t.Fatal("tries more often than allowed")
		}
	})
}

func TestOptionsReportEveryFaultAtOnce(t *testing.T) {
	t.Parallel()
	_, err := middleware.Lock(middleware.Options{
		Strategy: middleware.Wait{Max: -1, Attempts: -1}.Then(middleware.Requeue{Delay: -1, Queue: " "}), TTL: time.Hour, MaxKeySize: -1,
	})
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{"Locker is not set", "Key is not set", "no place for them", "Wait.Max", "Wait.Attempts", "Requeue.Delay", "Requeue.Queue", "TTL is 1h", "MaxKeySize"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not say %q:\n%v", want, err)
		}
	}
}

func TestATTLThatAsynqOutrunsIsRefused(t *testing.T) {
	t.Parallel()
	for ttl, ok := range map[time.Duration]bool{0: true, 55*time.Second - 1: true, 55 * time.Second: false} {
		err := middleware.Options{
			Locker: lockerFunc(nil), Key: middleware.FixedKey("k"), Strategy: middleware.FailFast{}, TTL: ttl, MaxHold: time.Hour / 2,
		}.Validate()
		if (err == nil) != ok {
			t.Errorf("TTL %v: %v", ttl, err)
		}
		if !ok && !strings.Contains(err.Error(), "below 55s") {
			t.Errorf("%v does not say what it must be", err)
		}
	}
}

func TestFailFastNeedsNoDelayQueue(t *testing.T) {
	t.Parallel()
	locker := lockerFunc(func(context.Context, []string, locking.Options) (*locking.Lease, error) {
		return nil, locking.ErrUnavailable
	})
	for name, tt := range map[string]struct {
		strategy middleware.Strategy
		ok       bool
	}{
		"fail fast":           {middleware.FailFast{}, true},
		"wait then fail fast": {middleware.Wait{}.Then(middleware.FailFast{}), true},
		"wait alone":          {middleware.Wait{}, false},
		"default":             {nil, false},
		"one's own":           {custom{}, false},
		"around fail fast":    {wrapped{next: middleware.FailFast{}}, true},
		"waits around it":     {middleware.Wait{}.Then(wrapped{next: middleware.FailFast{}}), true},
		"around a requeue":    {wrapped{next: middleware.Requeue{}}, false},
		"around nothing":      {wrapped{}, false},
	} {
		_, err := middleware.Lock(middleware.Options{Locker: locker, Key: middleware.FixedKey("k"), Strategy: tt.strategy})
		if (err == nil) != tt.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// custom is a strategy that a user may write.
type custom struct{}

func (custom) Decide(middleware.Conflict) middleware.Decision { return middleware.Decision{} }

// wrapped is a strategy that a user may write around another one.
type wrapped struct {
	custom
	next middleware.Strategy
}

func (w wrapped) Unwrap() middleware.Strategy { return w.next }

// lockerFunc is a function as a Locker.
type lockerFunc func(context.Context, []string, locking.Options) (*locking.Lease, error)

func (f lockerFunc) Acquire(ctx context.Context, keys []string, opts locking.Options) (*locking.Lease, error) {
	return f(ctx, keys, opts)
}

func TestKeyFunctions(t *testing.T) {
	t.Parallel()
	type body struct{ ID string }
	task := asynq.NewTaskWithHeaders("t", []byte(`{"ID":"7"}`), map[string]string{"Order": "8"})
	for name, tt := range map[string]struct {
		f    middleware.KeyFunc
		want []string
	}{
		"payload":        {middleware.PayloadKey(func(b body) string { return "order:" + b.ID }), []string{"order:7"}},
		"payload, two":   {middleware.PayloadKeys(func(b body) []string { return []string{b.ID, "x"} }), []string{"7", "x"}},
		"header":         {middleware.HeaderKey("Order"), []string{"8"}},
		"missing header": {middleware.HeaderKey("Nothing"), nil},
		"fixed":          {middleware.FixedKey("a", "b"), []string{"a", "b"}},
	} {
		got, err := tt.f(t.Context(), task)
		if !reflect.DeepEqual(got, tt.want) || (err == nil) != (tt.want != nil) {
			t.Errorf("%s: %q, %v; want %q", name, got, err, tt.want)
		}
	}
}

func TestKeyFunctionsRefuseNothingToReadFrom(t *testing.T) {
	t.Parallel()
	for name, build := range map[string]func(){
		"PayloadKey":  func() { middleware.PayloadKey[string](nil) },
		"PayloadKeys": func() { middleware.PayloadKeys[string](nil) },
		"HeaderKey":   func() { middleware.HeaderKey("") },
	} {
		func() {
			defer func() {
				if p, _ := recover().(string); !strings.Contains(p, name+" needs") {
					t.Errorf("%s: %q", name, p)
				}
			}()
			build()
		}()
	}
}

func TestAFixedKeyMustNotBeEmpty(t *testing.T) {
	t.Parallel()
	for _, keys := range [][]string{nil, {""}, {"a", ""}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%q is accepted", keys)
				}
			}()
			middleware.FixedKey(keys...)
		}()
	}
}
