package broker

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/asynqwire"
	"github.com/railtoken/railtoken/internal/broker/intake"
)

// look spares an idle server the scripts that would find nothing: a script costs Redis several commands for each queue,
// and a look at all queues is one. Only a client of one node can look so. It is safe for concurrent use.
type look struct {
	client redis.UniversalClient
	beside Beside

	mu      sync.Mutex
	pending []string  // the keys of the queues; none if the client has several nodes
	delayed []string  // the keys of what asynq forwards when it is due
	empty   bool      // the last fetch has found nothing
	sent    time.Time // when Redis has last run asynq's forward
	until   time.Time
	nothing bool // until then nothing is delayed
}

// forwardRound is longer than asynq takes to forward what is due in all queues, and shorter than the time between two
// rounds.
const forwardRound = 100 * time.Millisecond

// forwardAnyway is how long asynq's forward is spared. Operators know the version of asynq by the scripts that Redis knows, and
// it forgets them in a SCRIPT FLUSH.
const forwardAnyway = 5 * time.Second

func newLook(client redis.UniversalClient, opts Options, atOnce bool) *look {
	l := &look{client: client, beside: opts.Beside}
	if !atOnce {
		return l
	}
	for queue := range intake.Served(opts.Queues) {
		l.pending = append(l.pending, asynqwire.Pending(queue))
		l.delayed = append(l.delayed, asynqwire.Scheduled(queue), asynqwire.Retry(queue))
	}
	return l
}

// fetched notes whether a fetch has found nothing, so that the next one looks first.
func (l *look) fetched(empty bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.empty = empty && len(l.pending) > 0
}

// inVain reports whether a fetch would find nothing. Unless the last one has found nothing, it is not known.
func (l *look) inVain(ctx context.Context) bool {
	l.mu.Lock()
	empty := l.empty
	l.mu.Unlock()
	if !empty {
		return false
	}
	if l.beside.Key == "" || !l.beside.Due() {
		return l.none(ctx, l.pending)
	}
	none := l.none(ctx, append(slices.Clip(l.pending), l.beside.Key))
	if none {
		l.beside.None()
	}
	return none
}

// forwardsNothing reports whether asynq's forward would find nothing in any queue. asynq calls it one at a time.
func (l *look) forwardsNothing(ctx context.Context) bool {
	l.mu.Lock()
	known, nothing := !time.Now().After(l.until), l.nothing
	l.mu.Unlock()
	if len(l.delayed) == 0 || l.forwardsDue() {
		return false
	}
	if known {
		return nothing
	}
	nothing = l.none(ctx, l.delayed)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.nothing, l.until = nothing, time.Now().Add(forwardRound)
	return nothing
}

// forwardsDue reports whether asynq's forward is to be sent, whatever there is.
func (l *look) forwardsDue() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Since(l.sent) >= forwardAnyway
}

// forwarded notes that Redis has run asynq's forward.
func (l *look) forwarded() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sent = time.Now()
}

// none reports whether none of some keys exists.
func (l *look) none(ctx context.Context, keys []string) bool {
	n, err := l.client.Exists(ctx, keys...).Result()
	return err == nil && n == 0
}
