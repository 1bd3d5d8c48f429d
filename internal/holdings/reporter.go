package holdings

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"os"
	"runtime/debug"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// Interval is the time between two reports of a worker, and lifetime how long one is kept.
	Interval = 5 * time.Second
	lifetime = 3 * Interval
	// forgotten is how long a worker that does not report any more stays in [Workers].
	forgotten = time.Hour
	// timeout bounds one report, storeTimeout the question before it where the locks are, and goodbye its removal.
	timeout      = 2 * time.Second
	storeTimeout = time.Second / 2
	goodbye      = time.Second
	// mostHeld is how many keys a report names.
	mostHeld = 1000
)

// Reporter writes the reports of one worker. A report that fails is left out: the next one comes 5 s later.
type Reporter struct {
	client redis.UniversalClient
	held   *Set
	worker Worker
	store  func(context.Context) (string, bool)
	id     string

	cancel context.CancelFunc
	ended  sync.WaitGroup
	known  bool // Redis has a report
}

// Start starts the reports of a worker about a Set. The queues, slots, configuration and backend are those of w, and store
// is asked before each report where the locks are. The first report is written at once, in the background. Call Close at
// the end.
func Start(client redis.UniversalClient, held *Set, w Worker, store func(context.Context) (string, bool)) *Reporter {
	w.Host, _ = os.Hostname()
	w.PID, w.Version, w.Since = os.Getpid(), version(), time.Now().UnixMilli()
	r := &Reporter{client: client, held: held, worker: w, store: store, id: rand.Text()}
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel = cancel
	r.ended.Go(func() { r.run(ctx) })
	return r
}

func (r *Reporter) run(ctx context.Context) {
	tick := time.NewTicker(Interval)
	defer tick.Stop()
	for {
		if r.write(ctx) == nil {
			r.known = true
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// write writes one report.
func (r *Reporter) write(ctx context.Context) error {
	asking, asked := context.WithTimeout(ctx, storeTimeout)
	if store, ok := r.store(asking); ok { // otherwise it is where it was
		r.worker.Store = store
	}
	asked()
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	w := r.worker
	r.held.fill(&w, mostHeld)
	text, err := json.Marshal(w)
	if err != nil {
		return err
	}
	now := time.Now()
	_, err = r.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.Set(ctx, Key(r.id), text, lifetime)
		p.ZAdd(ctx, Workers, redis.Z{Score: float64(now.UnixMilli()), Member: r.id})
		p.ZRemRangeByScore(ctx, Workers, "-inf", strconv.FormatInt(now.Add(-forgotten).UnixMilli(), 10))
		return nil
	})
	return err
}

// Close ends the reports and removes the last one, if Redis has had one. It takes 1 s at most.
func (r *Reporter) Close() {
	r.cancel()
	r.ended.Wait()
	if !r.known {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), goodbye)
	defer cancel()
	_, _ = r.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.Del(ctx, Key(r.id))
		p.ZRem(ctx, Workers, r.id)
		return nil
	})
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
