package crashtest_test

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/rediswire"
	"github.com/railtoken/railtoken/middleware"
)

// order is what a ledger knows of the order in which tasks came. What is promised, and checked at each run of a handler:
//
// A task whose arrival had ended before that of another one of its key began runs to its effect first, whatever becomes of the processes
// meanwhile: its entry stays in line until its handler has returned, and when a process stops before that, until another one has run it.
// FIFO excepts a task from that whose handler has failed; StrictFIFO excepts none. Either excepts one that asynq gives up, because it was
// active on its last attempt when its process stopped.
//
// The arrival of a task is the call of Queue.Enqueue for it, or the command with which its first run takes its turn when it was
// enqueued by asynq's client. A task whose call of Queue.Enqueue has never ended is before nobody.
type order struct {
	middleware.Order
	came  map[string]arrival   // by task
	calls map[string]time.Time // of Queue.Enqueue: when the first one for a task began
	ended map[string]bool      // tasks that asynq gives up
}

// arrival is when a task came.
type arrival struct {
	keys       []string
	began, end time.Time
}

// before reports whether one task came before another one.
func (a arrival) before(b arrival) bool { return a.end.Before(b.began) }

// call notes that Queue.Enqueue is called for a task.
func (l *ledger) call(j job) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.order.calls[j.ID]; !ok {
		l.order.calls[j.ID] = time.Now()
	}
}

// called notes that a call of Queue.Enqueue has ended.
func (l *ledger) called(j job) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.order.came[j.ID] = arrival{j.keys(), l.order.calls[j.ID], time.Now()}
}

// arrive notes the first arrival of a task that joins the line when it runs.
func (l *ledger) arrive(j job, began time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.order.came[j.ID]; !ok {
		l.order.came[j.ID] = arrival{j.keys(), began, time.Now()}
	}
}

// giveUp notes that asynq will not run a task again.
func (l *ledger) giveUp(task string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.order.ended[task] = true
}

// checkOrder checks that nobody who came before a task that begins to run has still to write an effect. The caller holds the mutex.
func (l *ledger) checkOrder(j job) {
	if l.order.Order == middleware.BestEffort || l.effects[j.ID] != nil {
		return
	}
	mine, ok := l.order.came[j.ID]
	if !ok && !j.InLine {
		l.fault("%s runs and has never joined a line", j.ID)
		return
	}
	if !ok { // its Enqueue has not returned yet
		mine = arrival{keys: j.keys(), began: l.order.calls[j.ID]}
	}
	for id, other := range l.order.came {
		if l.effects[id] == nil && !l.order.ended[id] && other.before(mine) && slices.ContainsFunc(other.keys, func(key string) bool { return slices.Contains(mine.keys, key) }) &&
			(l.order.Order == middleware.StrictFIFO || l.failures[id] == 0) {
			l.fault("%s runs before %s, which came before it", j.ID, id)
		}
	}
}

// joined returns the job that a command gives a place in line, if it is such a command.
func (r *run) joined(cmd redis.Cmder) (j job, ok bool) {
	if stepOf(r.m, cmd) != "sequence_join" {
		return job{}, false
	}
	n, _ := cmd.Args()[2].(int) // keys, and behind them the arguments
	entry := fmt.Sprint(cmd.Args()[3+n])
	_, member, _ := strings.Cut(entry, ":")
	for _, queue := range r.queues() {
		if id, ok := strings.CutPrefix(member, queue); ok && entry == strconv.Itoa(len(queue))+":"+member {
			return r.job(id), true
		}
	}
	r.Errorf("a task joins the line that is in none of the queues: %v", cmd.Args())
	return job{}, false
}

// begun reports whether a task in the line of a key had begun to work.
func begun(m *miniredis.Miniredis, key, queue, id string) bool {
	place, _ := m.ZScore("railtoken:sequence:{"+rediswire.Encode(key)+"}", fmt.Sprintf("%d:%s%s", len(queue), queue, id)) // 0 when it is not there
	return place != math.Trunc(place)
}

// inLine returns the entries of the line of a key.
func inLine(m *miniredis.Miniredis, key string) []string {
	members, _ := m.ZMembers("railtoken:sequence:{" + rediswire.Encode(key) + "}") // none when there is no line
	return members
}
