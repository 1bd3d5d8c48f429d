package lanemove

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/asynqwire"
	"github.com/railtoken/railtoken/internal/holdings"
	"github.com/railtoken/railtoken/internal/line"
)

// Errors of [Run]. What was moved is moved, and the rest stays where it was.
var (
	// ErrWorkers reports that workers without these lanes serve the queue: their locks do not exclude those of the others.
	ErrWorkers = errors.New("workers without these lanes serve the queue")
	// ErrSuperseded reports that a later move of the queue has begun.
	ErrSuperseded = errors.New("another move of the queue has begun: let that one end")
	errNoLanes    = errors.New("a move needs a Redis Cluster and a number of lanes")
)

// The states of tasks that move, which are the names of their sets, in the order in which they do: those that wait for keys first.
const (
	retryState     = "retry"
	pendingState   = "pending"
	scheduledState = "scheduled"
	archivedState  = "archived"
)

var states = []string{retryState, pendingState, scheduledState, archivedState}

const (
	// roundSize is how many tasks of a state are listed at a time, and batchSize how many are moved at a time.
	roundSize, batchSize = 50_000, 100
	// mostRounds bounds the rounds of a state: tasks are added while others move.
	mostRounds = 1000
	// copyLife is how long a copy is kept that nobody activates, and recordLife how long a record of a move that has ended: a
	// move that stood still for as long would count as the latest.
	copyLife, recordLife = 10 * time.Minute, 24 * time.Hour
	// workersEach is the time between two looks at the workers.
	workersEach = 5 * time.Second
	// mostTries is how often a batch is tried that Redis does not answer, and between is the pause before the next try.
	mostTries, between = 40, 250 * time.Millisecond
)

// Options says what is moved. Engine and Queue must be set.
type Options struct {
	// Engine has the lanes.
	Engine *line.Engine
	// Queue is one without a lane.
	Queue string
	// Progress is told how many tasks have been moved; nil for nobody.
	Progress func(moved int)
}

// Report says what was moved, or would be.
type Report struct {
	Queue string
	// Moved counts tasks by state, and Lanes by lane. Resumed is how many an earlier move had begun with.
	Moved   map[string]int
	Lanes   []int
	Resumed int
	// Stays counts the tasks that stay where they are.
	Stays map[Reason]int
}

func newReport(o Options) *Report {
	return &Report{Queue: o.Queue, Moved: map[string]int{}, Lanes: make([]int, o.Engine.Names().Count()), Stays: map[Reason]int{}}
}

// Total returns how many tasks were moved.
func (r *Report) Total() (n int) {
	for _, moved := range r.Moved {
		n += moved
	}
	return n
}

// mover is one move of a queue.
type mover struct {
	Options
	client redis.UniversalClient
	names  line.Names
	report *Report

	number string // of the move
	stays  map[string]Reason
	listed map[string]bool
	looked time.Time // at the workers
}

// Run moves the tasks of a queue into its lanes. It goes on with what an earlier move has begun, so repeat it after an error.
// Tasks that come meanwhile are moved, too, unless they come at the very end.
func Run(ctx context.Context, o Options) (*Report, error) {
	m := newMover(o)
	defer m.countStays()
	if m.names.Count() == 0 {
		return m.report, errNoLanes
	}
	if err := m.names.Check(o.Queue); err != nil {
		return m.report, err
	}
	if err := m.checkWorkers(ctx); err != nil {
		return m.report, err
	}
	if err := o.Engine.Agreement().Introduce(ctx); err != nil {
		return m.report, err
	}
	if err := m.begin(ctx); err != nil {
		return m.report, err
	}
	if err := m.adopt(ctx); err != nil {
		return m.report, fmt.Errorf("move the sequences of queue %s: %w", o.Queue, err)
	}
	for _, state := range states {
		if err := m.moveAll(ctx, state); err != nil {
			return m.report, fmt.Errorf("move the tasks of queue %s: %w", o.Queue, err)
		}
	}
	return m.report, m.end(ctx)
}

func newMover(o Options) *mover {
	return &mover{
		Options: o, client: o.Engine.Client(), names: o.Engine.Names(), report: newReport(o), listed: map[string]bool{}, stays: map[string]Reason{},
	}
}

func (m *mover) countStays() {
	for _, why := range m.stays {
		m.report.Stays[why]++
	}
}

// checkWorkers returns an error if workers without these lanes report that they serve the queue, but not more often than needed.
func (m *mover) checkWorkers(ctx context.Context) error {
	if time.Since(m.looked) < workersEach {
		return nil
	}
	reports, err := holdings.Read(ctx, m.client)
	if err != nil {
		return err
	}
	m.looked = time.Now()
	var names []string
	for _, r := range reports {
		if r.Queues[m.Queue] > 0 && r.Lanes != m.names.Count() && time.Since(r.Seen) < 3*holdings.Interval {
			names = append(names, fmt.Sprintf("%s/%d (%d lanes)", r.Host, r.PID, r.Lanes))
		}
	}
	if len(names) > 0 {
		slices.Sort(names)
		return fmt.Errorf("%w: %s: stop them, and start those with %d lanes", ErrWorkers, strings.Join(names, ", "), m.names.Count())
	}
	return nil
}

// begin has the move begin beside the queue and all of its lanes, and ends what earlier moves have begun.
func (m *mover) begin(ctx context.Context) error {
	var err error
	if m.number, err = m.beginAt(ctx, m.Queue, "", false); err != nil {
		return err
	}
	for _, over := range []bool{false, true} {
		for lane := range m.names.Count() {
			if _, err := m.beginAt(ctx, m.names.Queue(m.Queue, lane), m.number, over); err != nil {
				return err
			}
		}
		if !over {
			if err := m.retried(ctx, func() error { return m.resume(ctx) }); err != nil {
				return fmt.Errorf("go on with an earlier move of queue %s: %w", m.Queue, err)
			}
		}
	}
	return nil
}

func (m *mover) beginAt(ctx context.Context, queue, number string, over bool) (string, error) {
	flag := ""
	if over {
		flag = "1"
	}
	number, err := beginScript.Run(ctx, m.client, []string{Record(queue)}, number, flag).Text()
	if err == nil && number == "" {
		err = ErrSuperseded
	}
	return number, err
}

// end has the records of the move end by themselves. They say until then that no earlier move may go on.
func (m *mover) end(ctx context.Context) error {
	_, err := m.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, queue := range m.names.Queues(m.Queue) {
			p.PExpire(ctx, Record(queue), recordLife)
		}
		return nil
	})
	return err
}

// retried tries something that Redis may not answer, while a slot moves for example.
func (m *mover) retried(ctx context.Context, do func() error) (err error) {
	for range mostTries {
		if err = do(); err == nil || errors.Is(err, ErrSuperseded) || errors.Is(err, ErrWorkers) || ctx.Err() != nil {
			return err
		}
		pause := time.NewTimer(between)
		select {
		case <-ctx.Done():
			pause.Stop()
			return err
		case <-pause.C:
		}
	}
	return err
}

// moveAll moves the tasks of a state, round by round, until one moves nothing.
func (m *mover) moveAll(ctx context.Context, state string) error {
	for stay, rounds := 0, 0; rounds < mostRounds; rounds++ { // so many stand first, and stay
		ids, err := m.list(ctx, state, stay)
		if err == nil && state == retryState {
			ids, err = m.byPlace(ctx, ids)
		}
		if err != nil {
			return err
		}
		before, first := m.report.Total(), stay == 0
		for some := range slices.Chunk(ids, batchSize) {
			stays, err := m.moveSome(ctx, state, some)
			if err != nil {
				return err
			}
			stay += stays
		}
		switch {
		case m.report.Total() > before || len(ids) == roundSize:
		case first:
			return nil
		default: // servers may have run some of those that stay
			stay = 0
		}
	}
	return nil
}

// moveSome moves a batch of tasks, and returns how many of them stay.
func (m *mover) moveSome(ctx context.Context, state string, ids []string) (stay int, err error) {
	failed := false
	err = m.retried(ctx, func() error {
		if failed {
			if err := m.resume(ctx); err != nil {
				return err
			}
		}
		failed = true
		err := m.checkWorkers(ctx)
		if err == nil {
			stay, err = m.batch(ctx, state, ids)
		}
		return err
	})
	if m.Progress != nil {
		m.Progress(m.report.Total())
	}
	return stay, err
}

// list returns the next tasks of a state in order, without the first ones, which stay.
func (m *mover) list(ctx context.Context, state string, stay int) ([]string, error) {
	set := asynqwire.Set(m.Queue, state)
	if state != pendingState {
		return m.client.ZRange(ctx, set, int64(stay), int64(stay)+roundSize-1).Result()
	}
	ids, err := m.client.LRange(ctx, set, int64(-stay-roundSize), int64(-stay-1)).Result()
	slices.Reverse(ids) // the end of the list is the head of the queue
	return ids, err
}
