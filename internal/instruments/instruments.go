// Package instruments defines the metrics of railtoken and what an event adds to them, for the adapters of telemetry
// libraries. No label is ever a business key.
package instruments

// Instrument is a metric: a counter, a histogram if it has Buckets, or a gauge if it is one of [Gauges].
type Instrument struct {
	// Name has dots and lacks the prefix, the unit and "total".
	Name string
	Help string
	// Unit is "s" for seconds, or empty.
	Unit    string
	Labels  []string
	Buckets []float64
}

// The labels.
const (
	labelType    = "type"
	labelQueue   = "queue"
	labelOutcome = "outcome"
	labelReason  = "reason"
	labelBy      = "by"
	labelNode    = "node"
	labelBackend = "backend"
	labelServer  = "server"
)

// The counters.
var (
	attempts = &Instrument{
		Name:   "attempts",
		Help:   "Runs of tasks by whether they got their keys; an unavailable run may get them later.",
		Labels: []string{labelType, labelQueue, labelOutcome},
	}
	waits = &Instrument{
		Name: "waits", Help: "Waits that have begun: a task was refused a key for the first time.",
		Labels: []string{labelType, labelQueue},
	}
	conflicts = &Instrument{
		Name:   "conflicts",
		Help:   "Conflicts by what became of the task: parked, waited until it got its keys, failed, was completed without a run, or reached a limit.",
		Labels: []string{labelType, labelQueue, labelOutcome},
	}
	wakes = &Instrument{
		Name: "wakes", Help: "Waiting tasks that run again, by the cause.", Labels: []string{labelQueue, labelBy},
	}
	wakesLost = &Instrument{
		Name: "wakes.lost", Labels: []string{labelQueue},
		Help: "Waiting tasks that no release woke although their keys and a slot were free: the holder or a wake was lost.",
	}
	cancelled = &Instrument{
		Name: "cancelled", Help: "Runs that have ended because their tasks were cancelled.", Labels: []string{labelType, labelQueue},
	}
	lost = &Instrument{
		Name: "leases.lost", Help: "Leases that were lost while the handler ran, by the reason.",
		Labels: []string{labelType, labelQueue, labelReason},
	}
	untold = &Instrument{
		Name: "ends.untold", Labels: []string{labelType, labelQueue},
		Help: "Ends of tasks that are not told, because OnArchived or OnCompleted has failed for the last time.",
	}
)

// superseded counts what does not run because only the latest is to run.
var superseded = &Instrument{
	Name: "superseded", Labels: []string{labelType, labelQueue}, Help: "Payloads in place of which a newer one runs.",
}

// recovered counts tasks whose workers have died.
var recovered = &Instrument{
	Name: "recovered", Labels: []string{labelQueue}, Help: "Tasks that run again because their worker has died or stood still.",
}

// The histograms. Waits and holds reach from a millisecond to an hour, the rest from 0.1 ms to half a minute.
var (
	wait = &Instrument{
		Name: "wait", Help: "Time from the first conflict of a task until its handler ran.", Unit: "s",
		Labels: []string{labelType, labelQueue}, Buckets: durations,
	}
	hold = &Instrument{
		Name: "hold", Help: "Time for which a handler held its keys.", Unit: "s",
		Labels: []string{labelType, labelQueue}, Buckets: durations,
	}
	wake = &Instrument{
		Name: "wake", Help: "Time from the release that let a waiting task run until its handler ran.", Unit: "s",
		Labels: []string{labelType, labelQueue}, Buckets: latencies,
	}
	acquire = &Instrument{
		Name: "acquire", Help: "Duration of the attempt that locked the keys of a task.", Unit: "s",
		Labels: []string{labelBackend}, Buckets: latencies,
	}
	latencies = []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30}
	durations = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600}
)

// The gauges.
var (
	up          = &Instrument{Name: "inspect.up", Help: "Whether Redis answered when the gauges were read: 1 or 0."}
	parked      = &Instrument{Name: "parked", Help: "Tasks that are parked on any key."}
	oldestWait  = &Instrument{Name: "oldest.wait", Help: "Time since the first conflict of the task that has waited longest.", Unit: "s"}
	slots       = &Instrument{Name: "slots.waiting", Help: "Worker slots in which tasks wait for a key, of all workers."}
	votes       = &Instrument{Name: "node.votes", Help: "Whether a lock server may vote: 1 or 0.", Labels: []string{labelNode}}
	quarantined = &Instrument{
		Name: "node.quarantine", Help: "Time until a lock server in quarantine may vote.", Unit: "s", Labels: []string{labelNode},
	}
)

// unreachable is a gauge of the workers of this process, of which an outage cannot stop the growth: nothing has to happen.
var unreachable = &Instrument{
	Name: "unreachable", Unit: "s", Labels: []string{labelServer},
	Help: "Time for which the Redis of the tasks, or the servers of the locks, have not answered the workers of this process or have refused their calls.",
}

// Counters returns all counters.
func Counters() []*Instrument {
	return []*Instrument{attempts, waits, conflicts, wakes, wakesLost, lost, cancelled, superseded, untold, recovered}
}

// Histograms returns all histograms.
func Histograms() []*Instrument { return []*Instrument{wait, hold, wake, acquire} }

// Gauges returns all gauges. [Gauge.Read] reads them.
func Gauges() []*Instrument {
	return []*Instrument{up, parked, oldestWait, slots, votes, quarantined, unreachable}
}

// Measurement is what an event adds to an instrument, or the value of a gauge. Labels has a value for each of the
// instrument's labels.
type Measurement struct {
	*Instrument
	Value  float64
	Labels []string
}

// of returns a measurement with a value for each label.
func (i *Instrument) of(value float64, labels ...string) Measurement {
	return Measurement{i, value, labels}
}
