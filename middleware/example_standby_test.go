package middleware_test

import (
	"fmt"
	"time"

	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/middleware"
)

// How many tasks wait on standby, that is in their slots, is a matter of each handler. Here one server, where two wait
// for a key already, decides upon a third.
func ExampleRequeue_Decide() {
	now := time.Now()
	third := middleware.Conflict{
		Key: "order:1042", Now: now, FirstAt: now, MayWait: true, MayStandBy: true, Standby: 2,
		Hold: 2 * time.Millisecond, Pickup: 20 * time.Millisecond, // ten tasks are done in the time in which a woken one arrives
	}
	held := third
	held.Holder = locking.Holder{Since: now.Add(-time.Second)} // for longer than a key that is worth it

	for _, row := range []struct {
		what     string
		strategy middleware.Requeue
	}{
		{"by default, up to 4", middleware.Requeue{}},
		{"slots are dear", middleware.Requeue{Standby: 1}},
		{"a handler of a millisecond", middleware.Requeue{Standby: 16}},
		{"never in a slot", middleware.Requeue{Standby: -1}},
	} {
		d := row.strategy.Decide(third)
		fmt.Printf("%-26s  on standby: %-5t  places: %-2d  held for a second: %d\n", row.what, d.Standby, d.StandbyLimit, row.strategy.Decide(held).StandbyLimit)
	}
	// Output:
	// by default, up to 4         on standby: true   places: 4   held for a second: 0
	// slots are dear              on standby: false  places: 1   held for a second: 0
	// a handler of a millisecond  on standby: true   places: 10  held for a second: 0
	// never in a slot             on standby: false  places: 0   held for a second: 0
}
