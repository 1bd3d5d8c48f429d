package intake

import (
	"cmp"
	"maps"
	"math/rand/v2"
	"slices"
)

// order says in which order the queues are looked at, as asynq does: with StrictPriority by priority, else at random by
// weight for each task.
type order struct {
	names   []string // sorted by priority, the highest first
	weights []int
	total   int
	fixed   string // the order, if it is always the same
}

// MostQueues is how many queues have a byte each in an order. A server with lanes has no more.
const MostQueues = 255

// Served returns the queues that an asynq server with these in its Config works on: those whose priority is above zero,
// and the default one when there are none.
func Served(queues map[string]int) map[string]int {
	served := maps.Clone(queues)
	maps.DeleteFunc(served, func(_ string, priority int) bool { return priority <= 0 })
	if len(served) == 0 {
		return map[string]int{"default": 1}
	}
	return served
}

func newOrder(queues map[string]int, strict bool) *order {
	queues = Served(queues)
	o := &order{}
	o.names = slices.SortedFunc(maps.Keys(queues), func(a, b string) int {
		return cmp.Or(cmp.Compare(queues[b], queues[a]), cmp.Compare(a, b))
	})
	for _, name := range o.names {
		o.weights = append(o.weights, queues[name])
		o.total += queues[name]
	}
	if strict || len(o.names) == 1 {
		fixed := make([]byte, len(o.names))
		for i := range fixed {
			fixed[i] = byte(i + 1)
		}
		o.fixed = string(fixed)
	}
	return o
}

// next returns the positions of the queues, from 1 on, in the order in which to look for one task. As in asynq, a queue
// comes before the others with the probability of its share of the weights.
func (o *order) next() string {
	if o.fixed != "" {
		return o.fixed
	}
	positions, left := make([]byte, 0, len(o.names)), o.total
	weights := slices.Clone(o.weights)
	for range o.names {
		at := rand.IntN(left)
		for i, weight := range weights {
			if at < weight {
				positions = append(positions, byte(i+1))
				left -= weight
				weights[i] = 0
				break
			}
			at -= weight
		}
	}
	return string(positions)
}

// orders returns the orders for n tasks, as arguments of a script; one, if it is always the same. With fixed ones it is that of
// some queues alone, unless there are none of these.
func (o *order) orders(n int, some queueSet) []any {
	if o.fixed != "" && some&allOf(len(o.names)) != 0 {
		cut := make([]byte, 0, len(o.fixed))
		for i := range len(o.names) {
			if some.has(i) {
				cut = append(cut, o.fixed[i])
			}
		}
		return []any{string(cut)}[:min(n, 1)]
	}
	if o.fixed != "" {
		return []any{o.fixed}[:min(n, 1)]
	}
	all := make([]any, n)
	for i := range all {
		all[i] = o.next()
	}
	return all
}

// share returns how many of n tasks, one at least, to take from a queue that is looked at alone and comes first for one
// of them: as many as there would be if each task had an order of its own.
func (o *order) share(queue string, n int) int {
	at := slices.Index(o.names, queue)
	switch {
	case at < 0:
		return 1
	case o.fixed != "":
		return n
	}
	return 1 + o.first(queue, n-1)
}

// first returns for how many of n tasks a queue comes first.
func (o *order) first(queue string, n int) (first int) {
	at := slices.Index(o.names, queue)
	switch {
	case at < 0:
		return 0
	case o.fixed != "":
		if at > 0 {
			return 0
		}
		return n
	}
	for range n {
		if rand.IntN(o.total) < o.weights[at] {
			first++
		}
	}
	return first
}
