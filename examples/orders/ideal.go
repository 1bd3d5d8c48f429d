package main

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// ideal is the shortest time that a run with locks can take: the work of its busiest key, one task after another.
type ideal struct {
	Key   string
	Tasks int
	Work  time.Duration // the sum of the running times of the key's handlers
}

// idealOf returns the key with the most work and how much work it has. It is zero when no handler has run here.
func idealOf(holds map[string][]hold) ideal {
	var busiest ideal
	for _, key := range slices.Sorted(maps.Keys(holds)) {
		sum := ideal{Key: key, Tasks: len(holds[key])}
		for _, h := range holds[key] {
			sum.Work += h.Ended.Sub(h.Began)
		}
		if sum.Work > busiest.Work {
			busiest = sum
		}
	}
	return busiest
}

// ratio returns how many times the ideal a run took; 0 when there is no ideal.
func (i ideal) ratio(took time.Duration) float64 {
	if i.Work <= 0 {
		return 0
	}
	return took.Seconds() / i.Work.Seconds()
}

// slow is the ratio above which a run says what may have slowed it down.
const slow = 1.5

// describe compares the time that a run took with the ideal. name is the busiest key as a person knows it.
func (i ideal) describe(name string, took time.Duration, embedded bool) string {
	text := fmt.Sprintf("The ideal is %s: the busiest key, %s, has %d tasks with that much work, and they must run one after another.\n"+
		"With railtoken the run took %s, %.2f times the ideal.", readable(i.Work), name, i.Tasks, readable(took), i.ratio(took))
	switch {
	case i.ratio(took) <= slow:
	case embedded:
		text += " The embedded Redis interprets all scripts in this process,\nso it is slow when processors are busy: " +
			"a redis-server (RAILTOKEN_REDIS_ADDR) comes closer to the ideal."
	default:
		text += " The time between two tasks of a key grows with the distance to Redis\nand with the load of this machine."
	}
	return text
}
