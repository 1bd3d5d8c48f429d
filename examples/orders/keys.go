package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// runID names one run of the example. Its queues and keys carry the name, so that runs on the same Redis do not disturb each
// other: a run that crashed may still hold locks for some seconds, and its tasks may still wait. A real business would lock
// "order:17" as it is.
type runID string

// newRunID returns a name that no other run has.
func newRunID() runID { return runID(strings.ToLower(rand.Text()[:8])) }

var runName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,40}$`)

func (r runID) validate() error {
	if !runName.MatchString(string(r)) {
		return fmt.Errorf("orders: -run is %q: use 1 to 40 letters, digits, dashes and underscores", string(r))
	}
	return nil
}

// The keys that tasks lock.
func (r runID) orderKey(id string) string  { return string(r) + "/order:" + id }
func (r runID) sellerKey(id string) string { return string(r) + "/seller:" + id }

// business returns the key without the run's name, as a person wants to see it.
func (r runID) business(key string) string { return strings.TrimPrefix(key, string(r)+"/") }

// The queues.
func (r runID) auditQueue() string    { return "audit-" + string(r) }
func (r runID) allocateQueue() string { return "allocate-" + string(r) }
func (r runID) cancelQueue() string   { return "cancel-" + string(r) }

// allQueues returns every queue that a task of the run can be in.
func (r runID) allQueues() []string {
	return []string{r.auditQueue(), r.allocateQueue(), r.cancelQueue()}
}

// queues returns the queues to work on and their weights. RAILTOKEN_QUEUES may give the weights of audit, allocate and cancel.
func (r runID) queues(weights map[string]int) (map[string]int, error) {
	queues := map[string]int{r.auditQueue(): 1, r.allocateQueue(): 1, r.cancelQueue(): 1}
	var faults []error
	for name, weight := range weights {
		switch name {
		case "audit":
			queues[r.auditQueue()] = weight
		case "allocate":
			queues[r.allocateQueue()] = weight
		case "cancel":
			queues[r.cancelQueue()] = weight
		default:
			faults = append(faults, fmt.Errorf("orders: RAILTOKEN_QUEUES names %q: this program has audit, allocate and cancel alone", name))
		}
	}
	return queues, errors.Join(faults...)
}

// The types of tasks.
const (
	auditType    = "order:audit"
	allocateType = "order:allocate"
	cancelType   = "order:cancel"
)

// The IDs of tasks: enqueuing the same order a second time makes no second task.
func auditID(order string) string    { return "audit:" + order }
func allocateID(order string) string { return "allocate:" + order }
func cancelID(order string) string   { return "cancel:" + order }

// isCancelled says whether the i-th order is cancelled, if every n-th is.
func isCancelled(i, n int) bool { return n > 0 && i%n == 0 }

// tasksOf returns how many tasks some orders become, if every n-th is cancelled.
func tasksOf(orders, n int) int {
	tasks := 2 * orders
	if n > 0 {
		tasks += (orders + n - 1) / n
	}
	return tasks
}
