package holdings

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// Interval is the time between two reports of a worker, and lifetime how long one is kept.
	Interval = 5 * time.Second
	lifetime = 3 * Interval
	// forgotten is how long a worker that does not report any more stays in [Workers], and recent how long it is looked at: its runs
	// are asynq's recoverer's by then.
	forgotten = time.Hour
	recent    = 3 * time.Minute
	// MostWorkers is how many workers look at one another: each of them reads the signs of all.
	MostWorkers = 1000
	// timeout bounds one report, and the question before the first one where the locks are, storeTimeout that before each other one, and
	// goodbye the removal.
	timeout      = 2 * time.Second
	storeTimeout = time.Second / 2
	goodbye      = time.Second
	// again is the pause before a report is tried again that has failed.
	again = time.Second
	// mostHeld is how many keys a report names.
	mostHeld = 1000
	// settled is after how many reports all workers have learned that a lock server has lost its data.
	settled = 2
)

// Options configures a [Reporter].
type Options struct {
	// Store is asked before each report where the locks are: see lockaccess.Access.
	Store func(context.Context) (store string, ok bool)
	// Moved is called when the locks are in another place than before.
	Moved func(before, now string)
	// Beside is called when a worker that runs has got a rival.
	Beside func(now string, rival *Rival)
	// Parked counts the tasks that wait; nil for no history.
	Parked Parked
	// Name is the name of the worker, as its runs and locks tell it: see lockwire.NewName. One is made if it is empty.
	Name string
	// After is after how long without a report others may take the runs of the worker: whole seconds, less than a hundred; 0 for
	// never.
	After time.Duration
	// Lapse is shorter. Lapsed is called after such a silence, before this worker counts as heard again, so that nothing goes on as
	// if nobody had taken anything.
	Lapse  time.Duration
	Lapsed func()
	// Looked is called after each report that was written, when Life knows what it has shown. It must be quick.
	Looked func()
	// Crowded is called once there are more workers than [MostWorkers]: who lives is not known then.
	Crowded func()
}

// Reporter writes the reports of one worker. One that fails is tried again a second later.
type Reporter struct {
	client redis.UniversalClient
	held   *Set
	worker Worker
	opts   Options
	id     string

	life    Life
	sent    atomic.Pointer[time.Time] // when the last report was sent that Redis has; nil for none
	crowded sync.Once

	compare int // the reports until the worker is compared with the others; 0 for never
	cancel  context.CancelFunc
	ended   sync.WaitGroup
	known   bool      // Redis may have a report
	minute  time.Time // of which the history has been told
}

// New returns a Reporter about a Set that reports nothing yet. The queues, slots, configuration and backend are those of w.
func New(client redis.UniversalClient, held *Set, w Worker, opts Options) *Reporter {
	w.Host, _ = os.Hostname()
	w.PID, w.Version, w.Since = os.Getpid(), version(), time.Now().UnixMilli()
	return &Reporter{client: client, held: held, worker: w, opts: opts, id: newID(opts)}
}

// ID returns the ID of the worker.
func (r *Reporter) ID() string { return r.id }

// Life returns what the reports have shown of other workers.
func (r *Reporter) Life() *Life { return &r.life }

// Rival returns a rival of this worker among those that report, or nil if there is none, and where the locks of this one
// are. It reports nothing. Call it before Start.
func (r *Reporter) Rival(ctx context.Context) (rival *Rival, store string, err error) {
	r.locate(ctx, timeout) // who has begun is only warned of a rival
	rival, err = r.rival(ctx)
	return rival, r.worker.Store, err
}

// Start writes the first report and starts the others. Call Close at the end. If there is a rival, Start returns it, and
// nothing is reported unless beside is true; then Start may be called again.
//
// A worker reports before it looks at the others, so of two rivals that start at the same moment at least one sees the
// other. It looks once more before that, so that one which is refused again and again is seen by nobody.
func (r *Reporter) Start(ctx context.Context, beside bool) (rival *Rival, store string, err error) {
	rival, store, err = r.Rival(ctx)
	if err == nil && (rival == nil || beside) {
		if err = r.write(ctx); err == nil && rival == nil {
			rival, err = r.rival(ctx)
		}
	}
	if isAnswer(err) { // the user has lost rules since the check: tasks are parked without them, too
		err = nil
		r.compare = settled
	}
	if store == "" {
		r.compare = settled
	}
	if err != nil || rival != nil && !beside {
		r.withdraw()
		if !r.known {
			r.sent.Store(nil) // it has no runs that others could take
		}
		return rival, store, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel = cancel
	r.ended.Go(func() { r.run(ctx) })
	return rival, store, nil
}

// isAnswer reports whether Redis has answered with an error.
func isAnswer(err error) bool {
	_, ok := errors.AsType[redis.Error](err)
	return ok
}

func (r *Reporter) run(ctx context.Context) {
	r.remember(ctx)
	tick := time.NewTimer(Interval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		tick.Reset(Interval)
		before := r.worker.Store
		if now := r.locate(ctx, storeTimeout); before != now {
			r.compare = settled // until then, the others may report what was before
			if before != "" {
				r.opts.Moved(before, now)
			}
		}
		if r.write(ctx) == nil {
			r.settle(ctx)
			r.remember(ctx)
			if next := time.Until(r.life.Next()); r.opts.After > 0 && next > 0 && next < Interval { //nolint:forbidigo // a pause
				tick.Reset(next + time.Millisecond)
			}
		} else {
			tick.Reset(again)
		}
	}
}

// settle compares the worker with the others once its store has been the same for a while.
func (r *Reporter) settle(ctx context.Context) {
	if r.compare == 0 || r.worker.Store == "" {
		return
	}
	if r.compare > 1 {
		r.compare--
		return
	}
	rival, err := r.rival(ctx)
	if err != nil {
		return // the next report tries again
	}
	r.compare = 0
	if rival != nil {
		r.opts.Beside(r.worker.Store, rival)
	}
}

// locate notes and returns where the locks are. If they do not answer within limit, they are where they were.
func (r *Reporter) locate(ctx context.Context, limit time.Duration) string {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if store, ok := r.opts.Store(ctx); ok {
		r.worker.Store = store
	}
	return r.worker.Store
}

// rival looks at the reports of the others.
func (r *Reporter) rival(ctx context.Context) (*Rival, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	all, err := Read(ctx, r.client)
	if rival := rivalOf(r.id, r.worker, all); rival != nil || err != nil {
		return rival, err
	}
	return r.elsewhere(ctx)
}

// write writes one report.
func (r *Reporter) write(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	w := r.worker
	w.Seen = time.Now().UnixMilli()
	r.held.fill(&w, mostHeld)
	text, err := json.Marshal(w)
	if err != nil {
		return err
	}
	r.known = true
	if err := r.sign(ctx); err != nil {
		return err
	}
	_, err = r.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.Set(ctx, Key(r.id), text, lifetime)
		r.addMarks(ctx, p)
		return nil
	})
	return err
}

// Close ends the reports and removes the last one, if Redis may have one. It takes 1 s at most. It reports whether Redis has none any
// more.
func (r *Reporter) Close() bool {
	if r.cancel != nil {
		r.cancel()
	}
	r.ended.Wait()
	r.withdraw()
	return !r.known
}

// withdraw removes the last report.
func (r *Reporter) withdraw() {
	if !r.known {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), goodbye)
	defer cancel()
	_, err := r.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.Del(ctx, Key(r.id))
		p.ZRem(ctx, Workers, r.id)
		return nil
	})
	r.known = err != nil
}

// module is the path of this module.
const module = "github.com/railtoken/railtoken"

// version returns that of railtoken in this program; empty if it is not known.
var version = sync.OnceValue(func() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	if info.Main.Path == module {
		return info.Main.Version
	}
	for _, dep := range info.Deps {
		if dep.Path == module {
			if dep.Replace != nil {
				dep = dep.Replace
			}
			return dep.Version
		}
	}
	return ""
})
