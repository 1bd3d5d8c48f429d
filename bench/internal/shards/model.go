package shards

import "math"

// Model says how many tasks a second workers and shards bear, from what a task costs.
type Model struct {
	// Client and Server are the processor time of a task in us: of the worker, and of all shards together.
	Client, Server float64
	// Imbalance is the load of the busiest shard by the mean; 1 when all have the same.
	Imbalance float64
	// RTT is a round trip between a worker and Redis in us, and Fetchers the asynq servers of each worker: each fetches one task after another.
	RTT      float64
	Fetchers int
}

// Rate returns the tasks in a second of so many shards and workers that each have a core of their own: what the first of three limits lets
// through. Workers need their processor time, the busiest shard needs its own, and fetches are serial.
func (m Model) Rate(shards, workers int) float64 {
	k, n := float64(shards), float64(workers)
	fetch := math.Inf(1)
	if m.RTT > 0 {
		fetch = n * float64(m.Fetchers) / m.RTT
	}
	imbalance := max(m.Imbalance, 1)
	if shards == 1 {
		imbalance = 1
	}
	return 1e6 * min(n/m.Client, k/(m.Server*imbalance), fetch)
}

// Shared returns the tasks in a second when workers and shards all share so many cores, which are never idle: the number of shards does not
// matter then.
func (m Model) Shared(cores int) float64 {
	return 1e6 * float64(cores) / (m.Client + m.Server)
}

// Memory returns the bytes that parked tasks and keys that were given back take, from the bytes of each.
func Memory(parked, idle int, perParked, perIdle float64) float64 {
	return float64(parked)*perParked + float64(idle)*perIdle
}

// imbalance returns the largest of the loads by their mean.
func imbalance(loads []float64) float64 {
	total, most := 0.0, 0.0
	for _, load := range loads {
		total += load
		most = max(most, load)
	}
	return most * float64(len(loads)) / total
}
