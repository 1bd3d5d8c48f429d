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

// The two queues.
func (r runID) auditQueue() string    { return "audit-" + string(r) }
func (r runID) allocateQueue() string { return "allocate-" + string(r) }

// allQueues returns every queue that a task of the run can be in.
func (r runID) allQueues() []string {
	return []string{r.auditQueue(), r.allocateQueue()}
}

// queues returns the queues to work on and their weights. RAILTOKEN_QUEUES may give the weights of audit and allocate.
func (r runID) queues(weights map[string]int) (map[string]int, error) {
	queues := map[string]int{r.auditQueue(): 1, r.allocateQueue(): 1}
	var faults []error
	for name, weight := range weights {
		switch name {
		case "audit":
			queues[r.auditQueue()] = weight
		case "allocate":
			queues[r.allocateQueue()] = weight
		default:
			faults = append(faults, fmt.Errorf("orders: RAILTOKEN_QUEUES names %q: this program has audit and allocate alone", name))
		}
	}
	return queues, errors.Join(faults...)
}

// The types of tasks.
const (
	auditType    = "order:audit"
	allocateType = "order:allocate"
)

// The IDs of tasks: enqueuing the same order a second time makes no second task.
func auditID(order string) string    { return "audit:" + order }
func allocateID(order string) string { return "allocate:" + order }
