package asynqconn

import (
	"errors"
	"net"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// lostFor is how long after its last unanswered fetch a queue is searched for tasks that such fetches took. Redis
	// may run a fetch late: when a stopped server resumes, it reads what clients have sent meanwhile.
	lostFor = time.Minute
	// lostFirst is the pause between the first two searches of a queue. It doubles with each search.
	lostFirst = time.Second
	// lostMost is how many unanswered fetches of a queue are remembered.
	lostMost = 1000
)

// lostFetches remembers the fetches that were not answered. Redis may have run them: then a task is active that no
// worker has, and asynq would recover it a minute later, as failed. The zero value remembers none.
type lostFetches struct {
	mu     sync.Mutex
	queues map[string]*lost
}

// lost are the unanswered fetches of a queue.
type lost struct {
	runs  []any // of each the name of its run and the end of its lease, as the script has them
	next  time.Time
	pause time.Duration
	until time.Time
}

// add remembers an unanswered fetch.
func (f *lostFetches) add(queue, run string, leaseEnd any, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	q := f.queues[queue]
	if q == nil {
		if f.queues == nil {
			f.queues = map[string]*lost{}
		}
		q = &lost{}
		f.queues[queue] = q
	}
	if len(q.runs) >= 2*lostMost {
		q.runs = q.runs[2:]
	}
	q.runs = append(q.runs, run, leaseEnd)
	q.next, q.pause, q.until = now, lostFirst, now.Add(lostFor)
}

// due returns the unanswered fetches of a queue when it is to be searched, and nil otherwise.
func (f *lostFetches) due(queue string, now time.Time) []any {
	f.mu.Lock()
	defer f.mu.Unlock()
	q := f.queues[queue]
	if q == nil || now.Before(q.next) {
		return nil
	}
	return q.runs[:len(q.runs):len(q.runs)]
}

// searched notes that a queue was searched.
func (f *lostFetches) searched(queue string, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	q := f.queues[queue]
	if q == nil {
		return
	}
	if !now.Before(q.until) {
		delete(f.queues, queue)
		return
	}
	q.next, q.pause = now.Add(q.pause), 2*q.pause
}

// unanswered reports whether a command may have run although it has failed.
func unanswered(err error) bool {
	if dial, ok := errors.AsType[*net.OpError](err); ok && dial.Op == "dial" {
		return false
	}
	_, reply := errors.AsType[redis.Error](err)
	return err != nil && !reply
}
