package tasks

import (
	"fmt"
	"time"
)

const (
	hotWork   = 5 * time.Millisecond
	otherWork = 20 * time.Millisecond
	// settled is enough for workers that are idle to have taken a task that was enqueued.
	settled = 100 * time.Millisecond
)

// BesideAHotKey returns tasks with keys of their own, and among the first half of them hot ones that all want the same
// key and are [Task.Aside].
func BesideAHotKey(others, hot int) Scenario {
	s := Scenario{Name: "hotkey", Bare: Slots, Title: fmt.Sprintf(
		"%d tasks x %v with keys of their own beside %d x %v for one key, on %d slots", others, otherWork, hot, hotWork, Slots)}
	added := 0
	for n := range others {
		for added < hot && added*others <= 2*n*hot {
			s = s.with(Task{Key: "hot", Work: hotWork, Aside: true})
			added++
		}
		s = s.with(Task{Key: fmt.Sprint("own:", n), Work: otherWork})
	}
	return s
}

// Pairs returns two tasks for each of n keys: a holder that works for half a second to one and a half, each for another
// time, and one that waits for it, which comes later.
func Pairs(n int) Scenario {
	s := Scenario{Name: "wake-all", Bare: Slots, Title: fmt.Sprintf(
		"%d keys, each held for 0.5 to 1.5 s while one task waits for it", n)}
	for i := range n {
		held := 500*time.Millisecond + time.Duration(i)*time.Second/time.Duration(n)
		s = s.with(Task{Key: fmt.Sprint("key:", i), Work: held})
	}
	for i := range n {
		s = s.with(Task{Key: fmt.Sprint("key:", i), Work: time.Millisecond, After: settled})
	}
	return s
}

// HandOffs returns n holders in the queue of the waiters and as many in the other one, and a waiter for each. The keys
// are held one after the other, so that the workers have nothing else to do when one is released.
func HandOffs(n int) Scenario {
	s := Scenario{Name: "wake", Title: "railtoken, by the TaskCheckInterval and by which worker released the key"}
	at := func(step int) time.Duration { return time.Duration(step) * settled }
	for i := range 2 * n {
		queue := []string{waiterQueue, otherQueue}[i%2]
		s = s.with(Task{Key: fmt.Sprint("key:", i), Work: at(2), After: at(3 * i), Queue: queue})
	}
	for i := range 2 * n {
		s = s.with(Task{Key: fmt.Sprint("key:", i), Work: time.Millisecond, After: at(3*i + 1), Queue: waiterQueue})
	}
	return s
}
