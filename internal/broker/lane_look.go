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
)

const (
	// laneLooks is in how many parts all lanes are looked at, and laneLookEach the time between two of these: so a lane whose notice
	// was lost waits for their product.
	laneLooks    = 4
	laneLookEach = 500 * time.Millisecond
	// laneLookLimit bounds a call of a look.
	laneLookLimit = time.Second
	// laneLooking is the purpose of a look.
	laneLooking = "look"
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
	masters    *masters
	notices    *notices

	mu sync.Mutex // guards what is known of the spots
}

// spot is what a look looks at: a lane, or a queue itself.
type spot struct {
	queues        []string
	all           []string   // the keys of all that may be there
	runnable      [][]string // for each queue those of which as many as justPending exist if it has tasks that may run
	delayed, owed []string   // those of its tasks that may run later, and of what is owed
	next          int        // the round of its next look
	// Whether it has anything, and whether some of it is delayed or owed, as far as is known.
	has, delays, owes bool
}

// justPending is how many of the keys of a queue in spot.runnable exist if it has pending tasks, which count twice, and is not paused.
const justPending = 2

func newLaneLook(client redis.UniversalClient, opts Options, in *intake.Intake) *laneLook {
	if opts.Lanes.Count() == 0 {
		return nil
	}
	l := &laneLook{client: client, lanes: opts.Lanes, intake: in, at: map[string]int{}, masters: newMasters(client)}
	for queue := range intake.Served(opts.Queues) {
		l.queues = append(l.queues, queue)
	}
	slices.Sort(l.queues)
	l.notices = newNotices(l.masters, l.lanes.Count(), l.hear)
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
		pending := asynqwire.Pending(queue)
		s.runnable = append(s.runnable, []string{pending, pending, asynqwire.Paused(queue)})
		s.all = append(s.all, pending)
		s.delayed = append(s.delayed, asynqwire.Scheduled(queue), asynqwire.Retry(queue))
		s.all = append(s.all, asynqwire.Active(queue), asynqwire.Lease(queue), asynqwire.Completed(queue))
	}
	s.all = slices.Concat(s.delayed, s.all)
	l.spots = append(l.spots, s)
}

// start looks at everything, and from then on in the background, until close.
func (l *laneLook) start() {
	if l == nil {
		return
	}
	l.begin.Do(func() {
		ctx, cancel := context.WithTimeout(l.masters.ended, awayAfter)
		defer cancel()
		for _, over := range l.round(0) {
			isOver(ctx, over)
		}
		l.masters.begin(errand{purpose: "rounds"}, func(ctx context.Context) {
			tick := time.NewTicker(laneLookEach)
			defer tick.Stop()
			for round := 1; ; round++ {
				select {
				case <-ctx.Done():
					return
				case <-tick.C:
					l.round(round)
				}
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
		l.masters.close()
		l.notices.close()
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

// nextLook returns the round after one in which a spot is looked at: a queue itself in each, and a lane in its own of laneLooks.
func nextLook(spot, lanes, round int) int {
	if spot >= lanes {
		return round + 1
	}
	return round + laneLooks - (round+laneLooks-spot%laneLooks)%laneLooks
}

// round begins a look at each master for those of its spots that are due, unless one is under way: then they stay due. It returns
// channels that are closed at the ends of the looks.
func (l *laneLook) round(round int) (over []<-chan struct{}) {
	for _, g := range l.masters.groups(len(l.spots), func(i int) string { return l.spots[i].all[0] }) {
		inLanes, _ := slices.BinarySearch(g.at, l.lanes.Count()) // they come before the queues themselves
		l.notices.follow(g.at[:inLanes], g.master, l.spots[g.at[0]].all[0])
		due := slices.DeleteFunc(g.at, func(i int) bool { return l.spots[i].next > round })
		if len(due) == 0 {
			continue
		}
		end, begun := l.masters.begin(errand{laneLooking, g.master}, func(ctx context.Context) { l.look(ctx, due) })
		if !begun {
			continue
		}
		for _, i := range due {
			l.spots[i].next = nextLook(i, l.lanes.Count(), round)
		}
		over = append(over, end)
	}
	l.notices.tidy()
	return over
}

// look looks at some spots of a master. What is known of those for which it does not answer stays as it was.
func (l *laneLook) look(ctx context.Context, some []int) {
	known := l.exist(ctx, some, func(s *spot) [][]string { return [][]string{s.all} })
	var filled []int
	l.mu.Lock()
	for n, i := range some {
		if exists, err := known[n][0].Result(); err == nil {
			s := &l.spots[i]
			s.has = exists > 0
			s.delays, s.owes = s.delays && s.has, s.owes && s.has
			if s.has {
				filled = append(filled, i)
			}
		}
	}
	l.mu.Unlock()
	parts := l.exist(ctx, filled, func(s *spot) [][]string { return append([][]string{s.delayed, s.owed}, s.runnable...) })
	for n, i := range filled {
		s, delayed, owed := &l.spots[i], parts[n][0], parts[n][1]
		for q, queue := range s.queues {
			if parts[n][2+q].Val() == justPending {
				l.intake.Hear(queue)
			}
		}
		l.mu.Lock()
		if exists, err := delayed.Result(); err == nil {
			s.delays = exists > 0
		}
		if exists, err := owed.Result(); err == nil {
			s.owes = exists > 0
		}
		l.mu.Unlock()
	}
}

// exist asks, for each of some spots, how many of some groups of its keys exist: in one pipeline.
func (l *laneLook) exist(ctx context.Context, some []int, groups func(*spot) [][]string) [][]*redis.IntCmd {
	answers := make([][]*redis.IntCmd, len(some))
	if len(some) == 0 {
		return answers
	}
	ctx, cancel := context.WithTimeout(ctx, laneLookLimit)
	defer cancel()
	_, _ = l.client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for n, i := range some {
			for _, keys := range groups(&l.spots[i]) {
				answer := redis.NewIntCmd(ctx)
				if len(keys) > 0 {
					answer = pipe.Exists(ctx, keys...)
				}
				answers[n] = append(answers[n], answer)
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
