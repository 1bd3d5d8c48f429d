package doctor

import "github.com/railtoken/railtoken/internal/lanes"

// folded is a queue with its lanes as one.
type folded struct {
	Queue
	// Lanes is how many of its lanes have ever had a task, and Halted how many of these are paused although others are not.
	Lanes, Halted int
}

// folded returns the queues in order, each with its lanes: it waits for what waits in any of them, and is paused if all are.
func (f *Facts) folded() (all []folded) {
	at := map[string]int{}
	for _, q := range f.Queues {
		name, _, inLane := lanes.Split(q.Name)
		i, known := at[name]
		if !known {
			i = len(all)
			at[name], all = i, append(all, folded{Queue: Queue{Name: name, Paused: true}})
		}
		one := &all[i]
		one.Pending, one.Waiting, one.Taken = one.Pending+q.Pending, one.Waiting+q.Waiting, one.Taken+q.Taken
		one.Served, one.Paused = one.Served || q.Served, one.Paused && q.Paused
		if inLane {
			one.Lanes++
		}
		if q.Paused {
			one.Halted++
		}
	}
	for i := range all {
		if all[i].Paused {
			all[i].Halted = 0
		}
	}
	return all
}
