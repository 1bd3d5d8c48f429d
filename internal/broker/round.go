package broker

import (
	"errors"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/rediswire"
)

// round follows a round of asynq, which fetches from one queue after the other until one has a task, and stops between two rounds
// alone. Once a fetch for all queues has found nothing, and the pause is over, the rest of the round needs no fetch, and no pause. It
// is safe for concurrent use.
type round struct {
	queues int64

	mu      sync.Mutex
	nothing int64 // so many calls were answered with nothing
	over    bool  // one of them was for all queues
}

// rests reports whether the next call is to be answered with nothing at once.
func (r *round) rests() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.over {
		return false
	}
	r.count()
	return true
}

// answered notes the answer to a call. all says that its last fetch was for all queues, and no others follow.
func (r *round) answered(err error, all bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case errors.Is(err, redis.Nil):
		r.over = all
		r.count()
	case rediswire.Says(err, rediswire.NoScript): // go-redis sends the whole script next
	default: // a task ends the round, and so does an error
		r.nothing = 0
	}
}

// count counts a call that is answered with nothing.
func (r *round) count() {
	r.nothing++
	if r.nothing >= r.queues {
		r.nothing, r.over = 0, false
	}
}
