package broker

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/asynqwire"
	"github.com/railtoken/railtoken/internal/broker/intake"
	"github.com/railtoken/railtoken/internal/lanes"
	"github.com/railtoken/railtoken/internal/subscription"
)

const (
	// laneLooks is in how many parts all lanes are looked at, and laneLookEach the time between two of these: so a lane whose notice
	// was lost waits for their product.
	laneLooks    = 4
	laneLookEach = 500 * time.Millisecond
	// laneLookLimit bounds a look.
	laneLookLimit = time.Second
)

// laneLook knows which lanes have nothing at all, by one command for each of them from time to time, so that nothing is to be
// done there. It tells the Intake which queues may have tasks: by these looks, and as soon as it hears of them. The queues
// themselves, where tasks are that were enqueued without lanes, are looked at, too. A nil laneLook is that of a server without
// lanes. It is safe for concurrent use.
type laneLook struct {
	client redis.UniversalClient
	lanes  lanes.Lanes
	queues []string
	intake *intake.Intake
	spots  []spot
	at     map[string]int // the position of the spot, by its queues

	begin, end sync.Once
	ended      context.Context
	cancel     context.CancelFunc
	running    sync.WaitGroup
	notices    *subscription.Subscription

	mu sync.Mutex // guards what is known of the spots
}

// spot is what a look looks at: a lane, or a queue itself.
type spot struct {
	queues                 []string
	all                    []string // the keys of all that may be there
	pending, delayed, owed []string // those of its tasks that may run, or may later, and of what is owed
	// Whether it has anything, and whether some of it is delayed or owed, as far as is known.
	has, delays, owes bool
}

func newLaneLook(client redis.UniversalClient, opts Options, in *intake.Intake) *laneLook {
	if opts.Lanes.Count() == 0 {
		return nil
	}
	l := &laneLook{client: client, lanes: opts.Lanes, intake: in, at: map[string]int{}}
	l.ended, l.cancel = context.WithCancel(context.Background())
	for queue := range intake.Served(opts.Queues) {
		l.queues = append(l.queues, queue)
	}
	slices.Sort(l.queues)
	for lane := range l.lanes.Count() {
		queues := make([]string, len(l.queues))
		for i, queue := range l.queues {
			queues[i] = l.lanes.Queue(queue, lane)
		}
		l.add(queues)
		if opts.Owed != nil {
			s := &l.spots[len(l.spots)-1]
			s.owed = []string{opts.Owed(lane)}
			s.all = append(s.all, s.owed...)
		}
	}
	for i := range l.queues {
		l.add(l.queues[i : i+1])
	}
	return l
}

// add adds a spot with some queues. Nothing is known of it.
func (l *laneLook) add(queues []string) {
	s := spot{queues: queues, has: true, delays: true, owes: true}
	for _, queue := range queues {
		l.at[queue] = len(l.spots)
		s.pending = append(s.pending, asynqwire.Pending(queue))
		s.delayed = append(s.delayed, asynqwire.Scheduled(queue), asynqwire.Retry(queue))
		s.all = append(s.all, asynqwire.Active(queue), asynqwire.Lease(queue), asynqwire.Completed(queue))
	}
	s.all = slices.Concat(s.pending, s.delayed, s.all)
	l.spots = append(l.spots, s)
}

// start looks at everything, and from then on in the background, until close.
func (l *laneLook) start() {
	if l == nil {
		return
	}
	l.begin.Do(func() {
		l.notices = subscription.New(l.client)
		_, _ = l.notices.Follow(lanes.ReadyChannel, l.hear)
		l.look(l.ended, func(int) bool { return true })
		l.running.Go(func() {
			tick := time.NewTicker(laneLookEach)
			defer tick.Stop()
			for part := 0; ; part++ {
				select {
				case <-l.ended.Done():
					return
				case <-tick.C:
				}
				l.look(l.ended, func(i int) bool { return i >= l.lanes.Count() || i%laneLooks == part%laneLooks })
			}
		})
	})
}

// close ends the looks.
func (l *laneLook) close() {
	if l == nil {
		return
	}
	l.begin.Do(func() {}) // it never starts
	l.end.Do(func() {
		l.cancel()
		l.running.Wait()
		if l.notices != nil {
			_ = l.notices.Close()
		}
	})
}

// hear notes that a queue may have tasks.
func (l *laneLook) hear(queue string) {
	i, ok := l.at[queue]
	if !ok {
		return
	}
	l.mu.Lock()
	l.spots[i].has = true
	l.mu.Unlock()
	l.intake.Hear(queue)
}

// look looks at some spots. A master that does not answer leaves what is known of its lanes as it was.
func (l *laneLook) look(ctx context.Context, at func(i int) bool) {
	ctx, cancel := context.WithTimeout(ctx, laneLookLimit)
	defer cancel()
	var some []int
	for i := range l.spots {
		if at(i) {
			some = append(some, i)
		}
	}
	known := l.exist(ctx, some, func(s *spot) []string { return s.all })
	l.mu.Lock()
	var filled []int
	for n, i := range some {
		s := &l.spots[i]
		if exists, err := known[n].Result(); err == nil {
			s.has = exists > 0
			s.delays, s.owes = s.delays && s.has, s.owes && s.has
		}
		if s.has {
			filled = append(filled, i)
		}
	}
	l.mu.Unlock()
	pending := l.exist(ctx, filled, func(s *spot) []string { return s.pending })
	delayed := l.exist(ctx, filled, func(s *spot) []string { return s.delayed })
	owed := l.exist(ctx, filled, func(s *spot) []string { return s.owed })
	for n, i := range filled {
		s := &l.spots[i]
		if pending[n].Val() > 0 {
			for _, queue := range s.queues {
				l.intake.Hear(queue)
			}
		}
		l.mu.Lock()
		if exists, err := delayed[n].Result(); err == nil {
			s.delays = exists > 0
		}
		if exists, err := owed[n].Result(); err == nil {
			s.owes = exists > 0
		}
		l.mu.Unlock()
	}
}

// exist asks, for each of some spots, how many of some of its keys exist: in one pipeline for each master.
func (l *laneLook) exist(ctx context.Context, some []int, keys func(*spot) []string) []*redis.IntCmd {
	answers := make([]*redis.IntCmd, len(some))
	if len(some) == 0 {
		return answers
	}
	_, _ = l.client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for n, i := range some {
			if all := keys(&l.spots[i]); len(all) > 0 {
				answers[n] = pipe.Exists(ctx, all...)
			} else {
				answers[n] = redis.NewIntCmd(ctx)
			}
		}
		return nil
	})
	return answers
}

// mayDelay reports whether a queue may have tasks that asynq forwards when they are due.
func (l *laneLook) mayDelay(queue string) bool {
	return l.is(queue, func(s *spot) bool { return s.delays })
}

// mayHave reports whether there may be anything in the lane of a queue.
func (l *laneLook) mayHave(queue string) bool {
	return l.is(queue, func(s *spot) bool { return s.has })
}

// mayOwe reports whether something may be owed in a lane.
func (l *laneLook) mayOwe(lane int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.spots[lane].owes
}

func (l *laneLook) is(queue string, so func(*spot) bool) bool {
	i, ok := l.at[queue]
	if !ok {
		return true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return so(&l.spots[i])
}
