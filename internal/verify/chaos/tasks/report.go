package tasks

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/railtoken/railtoken/internal/verify/chaos"
)

// Row is what a run has shown of a subject.
type Row struct {
	Subject           Subject
	Events, Failovers int
	// Runs is how often handlers have begun, Repeats how many of them found the effect of their task there, and Refused how many steps the
	// ledger has refused for a larger token.
	Tasks, Effects, Runs, Repeats, Refused int
	// What failovers explain: tasks that were gone and enqueued anew, tasks that came later than sent, and two holders at once.
	Gone, LateAllowed, Explained int
	// Counted is how many successes asynq has counted.
	Counted int
	// The damage: tasks without an effect or gone without a reason, tasks with several effects, updates that another one has overwritten,
	// tokens that were there before or are below an earlier one, two holders of a key at once, tasks whose effect came too late, successes
	// that asynq has counted too many or too few, and what remained in the end.
	Lost, Twice, LostUpdates, Tokens, Met, Disordered, Miscounted, Left int

	Notes notes // on the damage
}

// notes are on the first pieces of damage.
type notes []string

func (n *notes) add(format string, args ...any) {
	if len(*n) < 50 {
		*n = append(*n, fmt.Sprintf(format, args...))
	}
}

// Damage counts it.
func (r Row) Damage() int {
	return r.Lost + r.Twice + r.LostUpdates + r.Tokens + r.Met + r.Disordered + r.Miscounted + r.Left
}

// String is the row in words.
func (r Row) String() string {
	return fmt.Sprintf("%s: %d events, %d failovers; %d tasks, %d effects, %d runs (%d repeats, %d refused steps), %d successes counted; "+
		"by failovers %d gone, %d late, %d times two holders; damage: %d lost, %d twice, %d lost updates, %d tokens, %d times two holders, "+
		"%d disordered, %d miscounted, %d left", r.Subject.Name, r.Events, r.Failovers, r.Tasks, r.Effects, r.Runs, r.Repeats, r.Refused,
		r.Counted, r.Gone, r.LateAllowed, r.Explained, r.Lost, r.Twice, r.LostUpdates, r.Tokens, r.Met, r.Disordered, r.Miscounted, r.Left)
}

// Shown is the damage that a control must show.
var Shown = []struct {
	Name  string
	Count func(Row) int
}{
	{"Lost", func(r Row) int { return r.Lost }},
	{"Twice", func(r Row) int { return r.Twice }},
	{"Lost updates", func(r Row) int { return r.LostUpdates }},
	{"Two holders", func(r Row) int { return r.Met }},
	{"Disordered", func(r Row) int { return r.Disordered }},
}

const text = `
## Tasks

%d worker processes with %d slots each run tasks of 500 keys on a Redis behind Sentinel, with a replica and three sentinels. A few keys are
those of many tasks. 300 keys are shared by tasks with ` + "`FailFast` (which asynq retries), `Wait` and `Requeue`" + `, 100 are those of tasks in
` + "`FIFO`" + ` order, and 100 in ` + "`StrictFIFO`" + ` order. Producers record the keys, or leave them to the servers. Locks last for %v, one task in 1 000
works for longer than that, and the first run of one task in 500 fails. Replication is asynchronous, and no producer waits for the replica.

What happens:

- %s

**The ledger** is a Redis to which nothing happens. A handler reads the revision of its key, works, and writes the next revision: the effect
of its task. The ledger refuses a token below that of an earlier run, and knows which tasks have had their effect: a later run of such a task
finds its effect there, and is a *repeat*.

**An outbox.** A failover loses what the replica has not received, and what was written meanwhile to a master that did not remain it, tasks
among it ([failure modes](failure-modes.md#the-tasks-redis)). A program that must lose none needs an outbox: after each failover, and in the
end, the producer looks for tasks that are in no queue and have had no effect, and enqueues them again. Those are *sent again*. A task among
them is *lost* unless it was enqueued during a failover or in the second before.

**The judges.** A task is *lost* if it has no effect in the end, or was sent again without such a reason, and counts under *twice* if it has
several effects. An update is *lost* if another one has overwritten it. A *token* counts if another task of the key had it, or an earlier
effect a larger one. *Two holders* counts how often a run came to a key while another one was there that still believed in its lease when
it left. *Disordered* counts the effects of the ordered keys that came after that of a task that was enqueued later. A failover may lose a
lease, or the position of a task: what happened so within that time, and while clocks stepped, is under *by a failover*, as *late* and *two
holders*. A task in ` + "`FIFO`" + ` order may come late after a run that has failed. *Miscounted* compares the successes that asynq has counted
with the runs that have succeeded and the tasks that were sent. *Left* is what remains in the end: tasks in queues or in the archive, and
names in Redis that say who waits for a key or holds one.

**The controls** have no outbox, and lack one thing more. Each damage that a run of minutes can show in them must be above 0 in one of them.

| Tasks of | Events | of these failovers | Tasks | Effects | Runs | Repeats | Steps refused | By a failover: sent again | late | two holders | Lost | Twice | Lost updates | Tokens | Two holders | Disordered | Miscounted | Left |
| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
`

// Report writes its part of the page.
func Report(file string, rows []Row, took time.Duration) error {
	faults := make([]string, len(Faults))
	for i, f := range Faults {
		faults[i] = string(f.Fault)
	}
	var b strings.Builder
	fmt.Fprintf(&b, text, Workers, concurrency, TTL, strings.Join(faults, "\n- "))
	for _, r := range rows {
		counted := [2]string{strconv.Itoa(r.Miscounted), strconv.Itoa(r.Left)}
		if r.Subject.Shows != nil {
			counted = [2]string{"", ""} // its queues are not waited for
		}
		fmt.Fprintf(&b, "| %s", r.Subject.Name)
		for _, n := range []int{
			r.Events, r.Failovers, r.Tasks, r.Effects, r.Runs, r.Repeats, r.Refused, r.Gone, r.LateAllowed, r.Explained, r.Lost, r.Twice,
			r.LostUpdates, r.Tokens, r.Met, r.Disordered,
		} {
			fmt.Fprintf(&b, " | %d", n)
		}
		fmt.Fprintf(&b, " | %s | %s |\n", counted[0], counted[1])
	}
	fmt.Fprintf(&b, "\nThe tasks of the first row were produced within %v, those of each control within a sixth of that. Of the first row, asynq has\n"+
		"counted %d successes: what it counted on a master that was replaced may be gone with it.\n", took, rows[0].Counted)
	return chaos.WritePart(file, "tasks", b.String())
}
