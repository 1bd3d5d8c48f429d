package crashtest_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/railtoken/railtoken/middleware"
)

// errFenced is what a database says to a writer whose token is old.
var errFenced = errors.New("a later token has been here")

// ledger is a database of the handlers. An effect is written under a fencing token, and once; a task whose effect is there writes
// nothing. Nobody writes for a process that has stopped.
type ledger struct {
	began    time.Time
	mu       sync.Mutex
	effects  map[string]*process // who wrote the effect of a task
	repeats  map[string]int      // how often a task came to write its effect and found it there
	runs     map[string]int      // how often a task's handler began
	failures map[string]int      // how often it failed because it was told to
	tokens   map[string]int64    // by key
	running  []*entry
	faults   []string
	waits    int // how many tasks had to wait
	handed   int // how many had the next token of the lease before theirs
	order    order
}

// entry is one run of a handler.
type entry struct {
	by     *process
	task   string
	tokens map[string]int64
}

func newLedger(o middleware.Order) *ledger {
	return &ledger{
		began:   time.Now(),
		effects: map[string]*process{}, repeats: map[string]int{}, runs: map[string]int{}, failures: map[string]int{}, tokens: map[string]int64{},
		order: order{Order: o, came: map[string]arrival{}, calls: map[string]time.Time{}, ended: map[string]bool{}},
	}
}

func (l *ledger) fault(format string, args ...any) {
	l.faults = append(l.faults, fmt.Sprintf(format, args...))
}

// begin notes that a handler runs, and claims its keys with their tokens.
func (l *ledger) begin(by *process, j job, tokens map[string]int64) (*entry, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if by.tap.isDead() {
		return nil, errStopped
	}
	task := j.ID
	l.runs[task]++
	l.checkOrder(j)
	for _, other := range l.running {
		for key := range other.tokens {
			if _, ok := tokens[key]; ok {
				l.fault("%s of %s runs while %s of %s does, with key %s", task, by.name, other.task, other.by.name, key)
			}
		}
	}
	for key, token := range tokens {
		if token <= l.tokens[key] {
			l.fault("token %d of key %s for %s is not above %d, which was there before", token, key, task, l.tokens[key])
			return nil, errFenced
		}
		if token == l.tokens[key]+1 {
			l.handed++
		}
		l.tokens[key] = token
	}
	e := &entry{by, task, tokens}
	l.running = append(l.running, e)
	return e, nil
}

// end notes that a handler has returned.
func (l *ledger) end(e *entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.running = slices.DeleteFunc(l.running, func(other *entry) bool { return other == e })
}

// stop ends all runs of the process that a tap belongs to.
func (l *ledger) stop(t *tap) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.running = slices.DeleteFunc(l.running, func(e *entry) bool { return e.by.tap == t })
}

// fails reports whether a run is one of the first n of its task, which are to fail.
func (l *ledger) fails(e *entry, n int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failures[e.task] >= n {
		return false
	}
	l.failures[e.task]++
	return true
}

// write writes the effect of a run.
func (l *ledger) write(e *entry) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e.by.tap.isDead() {
		return errStopped
	}
	for key, token := range e.tokens {
		if l.tokens[key] != token {
			return errFenced
		}
	}
	if l.effects[e.task] != nil {
		l.repeats[e.task]++
		return nil
	}
	l.effects[e.task] = e.by
	return nil
}

// waited notes that a task had to wait.
func (l *ledger) waited() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waits++
}

// counts returns how many tasks had to wait, and to how many a lease was handed off.
func (l *ledger) counts() (waits, handed int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.waits, l.handed
}

// has reports whether the effect of a task is there.
func (l *ledger) has(task string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.effects[task] != nil
}

// repeated returns the tasks that found their effect there.
func (l *ledger) repeated() map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.repeats)
}

// wrong returns everything that was not as it must be.
func (l *ledger) wrong() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.faults)
}
