package e2e_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/attach"
	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/middleware"
)

// The size of the soak: "make soak" runs a large one. The variables are those of scripts/soak.sh.
var (
	soakTasks = flag.Int("tasks", soaked, "`number` of tasks of the soak")
	soakKeys  = flag.Int("keys", 60, "`number` of keys that they share, by Zipf 1.1")
	soakKills = flag.Duration("kills", soaked*2*time.Millisecond, "how `long` worker processes are killed")
	soakEvery = flag.Duration("every", soakedEvery, "`time` from one kill to the next")
	soakSeed  = flag.Uint64("seed", 1, "`seed` of the keys, the order of the tasks and the victims")
	soakFleet = flag.String("fleet", "", "test `binary` of this package, of another version of railtoken, that every other worker runs")
	soakWait  = flag.Bool("wait", false, "wait until asynq brings the tasks of killed processes back, which takes two minutes, instead of ageing their leases")
)

const (
	soakProcesses = 3
	// removeEvery is the mean time between two moments at which keys are removed.
	removeEvery = soakedEvery * 3 / 10
	// recoveryPatience bounds how long the workers may take for what is left after the last kill, when they wait for asynq, which
	// recovers a task 60 to 120 s after its worker was killed, and for timers of up to 10 min of tasks that have lost their waiters. With aged leases
	// the usual limit holds: who is not woken comes back too late.
	recoveryPatience = 15 * time.Minute
)

// soakMode is what is done in a soak, besides that workers are killed.
type soakMode struct {
	share   int      // its tasks are one in so many
	most    int      // and so many at most, unless 0: without parking at the ack a hot key is slow
	changed string   // the kind of asynq's scripts that are not known: the workers are plain asynq servers with locks attached then
	removed []string // patterns of railtoken's keys that are removed at random moments
	unsafe  bool     // locks are among them, so that two tasks may meet, of which fencing lets one write
	order   middleware.Order
	// recorded says that the producer records the keys, so that tasks are fetched with their locks, apart that the workers take
	// the locks by calls of their own, as if they were elsewhere, and mixed that one worker in two does.
	recorded, apart, mixed bool
}

var soakModes = map[string]soakMode{
	"killed":                {share: 1},
	"recorded":              {share: 2, recorded: true},
	"apart":                 {share: 2, apart: true},
	"mixed":                 {share: 2, recorded: true, mixed: true},
	"unknown-fetch":         {most: 100, share: 1, changed: "fetch"},
	"unknown-acks":          {most: 100, share: 1, changed: "acks"},
	"without-keys":          {share: 2, removed: []string{"railtoken:*"}, unsafe: true},
	"FIFO":                  {share: 1, order: middleware.FIFO},
	"StrictFIFO":            {share: 1, order: middleware.StrictFIFO},
	"without-keys-in-order": {share: 2, removed: []string{"railtoken:*"}, unsafe: true, order: middleware.FIFO},
	"without-waiters":       {share: 2, removed: []string{"railtoken:waiters:*", "railtoken:sequence:*", "railtoken:parked"}},
}

// soak is the servers and the worker processes of one soak.
type soak struct {
	*testing.T
	soakMode
	tasks            int
	kills            time.Duration
	server, dbServer *redistest.Server
	client           redis.UniversalClient
	db               *redis.Client
	queues           []string
	namespace        string // of all names, and of a user who may use no others; that of the suite when empty
	workers          []*child
	started          int // workers
}

func TestASoakOfKilledWorkersDoesEachTaskOnceAndStrandsNobody(t *testing.T) {
	t.Parallel()
	for name, mode := range soakModes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tasks := *soakTasks / mode.share
			if mode.most > 0 {
				tasks = min(tasks, mode.most)
			}
			server, dbServer := startShared(t), redistest.Start(t)
			s := &soak{
				T: t, soakMode: mode, tasks: tasks, kills: max(*soakKills*time.Duration(tasks)/time.Duration(*soakTasks), 2**soakEvery),
				server: server, dbServer: dbServer, client: named(t, server.Client(t)), db: dbServer.Client(t), queues: []string{"audit", "allocate"},
			}
			s.run(rand.New(rand.NewPCG(*soakSeed, 0)))
		})
	}
}

func (s *soak) run(random *rand.Rand) {
	s.Helper()
	began := time.Now()
	hottest := s.enqueue(random)
	s.Logf("%d tasks on %d keys, %d of them on one, enqueued in %v", s.tasks, *soakKeys, hottest, time.Since(began).Round(time.Millisecond))

	// No task runs before all workers do, or the first worker on a slow machine might do all of them.
	inspect := asynq.NewInspectorFromRedisClient(s.client)
	for _, queue := range s.queues {
		if err := inspect.PauseQueue(queue); err != nil {
			s.Fatal(err)
		}
	}
	for range soakProcesses {
		s.workers = append(s.workers, s.start())
	}
	began = time.Now()
	for _, queue := range s.queues {
		if err := inspect.UnpauseQueue(queue); err != nil {
			s.Fatal(err)
		}
	}
	end := s.remove(rand.New(rand.NewPCG(*soakSeed, 1)))
	kills := s.kill(random)
	done := s.done()
	s.Logf("%d kills in %v: %d tasks were done meanwhile, %.0f/s", kills, time.Since(began).Round(time.Millisecond), done,
		float64(done)/time.Since(began).Seconds())
	if want := max(int(s.kills / *soakEvery)/2, 1); kills < want {
		s.Errorf("only %d kills in %v, want %d: the workers were done too soon", kills, s.kills, want)
	}
	if times, keys := end(); len(s.removed) > 0 {
		s.Logf("%d keys were removed in %d moments", keys, times)
		if keys == 0 {
			s.Error("there were no keys to be removed")
		}
	}
	if !*soakWait {
		s.ageLeases()
		s.ageTimers()
	}
	s.finish(began)
	s.check()
	warned := 0
	for _, w := range s.workers { // one that had nothing to do may not have met a changed script
		n := w.log.of("use that version of asynq")
		warned += n
		if n > 1 {
			s.Errorf("%s has warned %d times of the version of asynq, want once", w.name, n)
		}
	}
	if (warned > 0) != (s.changed != "") {
		s.Errorf("%d warnings of the version of asynq", warned)
	}
}

// remove removes keys at random moments, until it is ended. Then it returns how many times it did, and how many keys.
func (s *soak) remove(random *rand.Rand) (end func() (times, keys int)) {
	if len(s.removed) == 0 {
		return func() (int, int) { return 0, 0 }
	}
	ctx, cancel := context.WithCancel(s.Context())
	s.Cleanup(cancel)
	var times, keys int
	var all sync.WaitGroup
	all.Go(func() {
		for ; ctx.Err() == nil; times++ { // at once, because a fast machine is soon done
			for found := 0; found == 0 && ctx.Err() == nil; <-time.After(time.Millisecond) { // there may be none just now
				for _, pattern := range s.removed {
					names, err := s.client.Keys(context.WithoutCancel(ctx), pattern).Result()
					if err == nil && len(names) > 0 {
						err = s.client.Del(context.WithoutCancel(ctx), names...).Err()
					}
					if err != nil {
						s.Error(err)
						return
					}
					found += len(names)
				}
				keys += found
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(time.Duration(random.Int64N(int64(2 * removeEvery)))):
			}
		}
	})
	return func() (int, int) {
		cancel()
		all.Wait()
		return times, keys
	}
}

// enqueue adds the tasks, from several goroutines, in a random order of their keys. It returns how many share the most frequent key.
func (s *soak) enqueue(random *rand.Rand) (hottest int) {
	s.Helper()
	zipf := rand.NewZipf(random, 1.1, 1, uint64(*soakKeys-1))
	keys, count := make([]uint64, s.tasks), map[uint64]int{}
	for i := range keys {
		keys[i] = zipf.Uint64()
		count[keys[i]]++
		hottest = max(hottest, count[keys[i]])
	}
	enqueue := asynq.NewClientFromRedisClient(s.client).EnqueueContext
	if s.recorded || s.order != middleware.BestEffort {
		p, err := attach.NewProducer(s.client, attach.ProducerOptions{Keys: map[string]middleware.KeyFunc{"work": orderKey}})
		if err != nil {
			s.Fatal(err)
		}
		defer func() { _ = p.Close() }()
		enqueue = p.EnqueueContext
		if s.order != middleware.BestEffort {
			enqueue = func(ctx context.Context, task *asynq.Task, opts ...asynq.Option) (*asynq.TaskInfo, error) {
				keys, err := orderKey(ctx, task)
				if err != nil {
					return nil, err
				}
				return p.EnqueueInOrder(ctx, keys[0], task, opts...)
			}
		}
	}
	const producers = 8
	failed := make([]error, producers)
	var all sync.WaitGroup
	for p := range producers {
		all.Go(func() {
			for i, key := range keys {
				if int(key%producers) != p || failed[p] != nil { // one after another of a key
					continue
				}
				payload := fmt.Appendf(nil, `{"order":"order:%d","task":"%d"}`, key, i)
				_, failed[p] = enqueue(s.Context(), asynq.NewTask("work", payload), asynq.Queue(s.queues[i%len(s.queues)]), asynq.MaxRetry(100))
			}
		})
	}
	all.Wait()
	for _, err := range failed {
		if err != nil {
			s.Fatal(err)
		}
	}
	return hottest
}

// start starts a worker process.
func (s *soak) start() *child {
	s.Helper()
	changed := s.changed
	s.started++
	if s.apart || s.mixed && s.started%2 == 0 {
		changed = plainLocks
	}
	env := []string{
		"RAILTOKEN_QUEUES=audit,allocate", "RAILTOKEN_CONCURRENCY=16", "RAILTOKEN_LOCK_TTL=2s", changedVariable + "=" + changed,
		orderVariable + "=" + s.order.String(),
	}
	env = append(env, namespaceVariables(s.namespace)...)
	if *soakFleet != "" && s.started%2 == 0 {
		return startProgram(s.T, *soakFleet, s.server.Addr(), s.dbServer.Addr(), false, env...)
	}
	return startChild(s.T, s.server.Addr(), s.dbServer.Addr(), false, env...)
}

// kill kills one worker process after another, each replaced at once, for as long as wanted, or until all is done. It returns how many.
func (s *soak) kill(random *rand.Rand) (kills int) {
	s.Helper()
	tick := time.NewTicker(*soakEvery)
	defer tick.Stop()
	for began := time.Now(); time.Since(began) < s.kills && s.done() < s.tasks; kills++ {
		<-tick.C
		victim := &s.workers[random.IntN(len(s.workers))]
		(*victim).kill()
		// Until the end of the victim's lease nobody can enter its orders, so this does not come too late.
		if err := s.db.SAdd(s.Context(), "dead", (*victim).name).Err(); err != nil {
			s.Fatal(err)
		}
		*victim = s.start()
	}
	return kills
}

// ageLeases lets asynq recover at once what killed processes had in hand, and not 60 to 120 s later. To be sure that all leases are those of
// the dead, it ends the living in order first, and starts others when the leases are old.
func (s *soak) ageLeases() {
	s.Helper()
	for _, w := range s.workers {
		w.stop()
	}
	aged := ageLeases(s.T, s.client, []string{"audit", "allocate"})
	s.Logf("%d tasks were in the hands of killed processes", aged)
	for i := range s.workers {
		s.workers[i] = s.start()
	}
}

// ageTimers lets tasks come back at once that have lost their waiters, and not by their timers, which may be as long as 10 min.
func (s *soak) ageTimers() {
	s.Helper()
	if s.changed == "" && len(s.removed) == 0 {
		return
	}
	for _, queue := range s.queues {
		retry := "asynq:{" + queue + "}:retry"
		for _, id := range s.client.ZRange(s.Context(), retry, 0, -1).Val() {
			s.client.ZAddXX(s.Context(), retry, redis.Z{Score: float64(time.Now().Unix()), Member: id})
		}
	}
}

// finish waits until every task is done, and tells how quickly they were.
func (s *soak) finish(began time.Time) {
	s.Helper()
	last, most, patience := time.Now(), s.done(), limit
	if *soakWait {
		patience = recoveryPatience
	}
	within(s.T, patience, "every task is done", func() bool {
		if s.changed != "" && !*soakWait {
			s.ageTimers() // each time: no wake reaches a task
		}
		if n := s.done(); n > most {
			last, most = time.Now(), n
		}
		return most >= s.tasks
	})
	took := last.Sub(began)
	runs := s.db.LLen(s.Context(), "started").Val()
	s.Logf("%d tasks in %v, %.0f/s; %d runs of handlers, %.4f for each task", s.tasks, took.Round(time.Millisecond),
		float64(s.tasks)/took.Seconds(), runs, float64(runs)/float64(s.tasks))
}

// check checks the ledger, and that nothing and nobody remains.
func (s *soak) check() {
	s.Helper()
	effects := s.db.HGetAll(s.Context(), "effects").Val()
	for i := range s.tasks {
		if n := effects[strconv.Itoa(i)]; n != "1" {
			s.Errorf("task %d was done %q times", i, n)
		}
	}
	if s.unsafe {
		s.db.Del(s.Context(), "overlaps")
	}
	if s.order != middleware.BestEffort && !s.unsafe {
		s.checkOrder()
	}
	checkEffects(s.T, s.db, s.tasks)
	drained(s.T, s.client, "audit", "allocate")
	nothingRemains(s.T, s.client)
}

// checkOrder checks that the tasks of each key had their effects in the order in which they were enqueued. Under FIFO, one that was run
// more than once may have failed and lost its position.
func (s *soak) checkOrder() {
	s.Helper()
	runs, late := map[string]int{}, 0
	for _, task := range s.db.LRange(s.Context(), "started", 0, -1).Val() {
		runs[task]++
	}
	for key := range *soakKeys {
		last := -1
		for _, task := range s.db.LRange(s.Context(), "done:order:"+strconv.Itoa(key), 0, -1).Val() {
			n, err := strconv.Atoi(task)
			switch {
			case err != nil:
				s.Fatal(err)
			case n > last:
				last = n
			case s.order == middleware.FIFO && runs[task] > 1:
				late++
			default:
				s.Errorf("of order:%d, task %d had its effect after task %d, which was enqueued later", key, n, last)
			}
		}
	}
	s.Logf("%d tasks were run more than once and came later than enqueued", late)
}

// done returns how many tasks have had their effect.
func (s *soak) done() int { return int(s.db.HLen(context.WithoutCancel(s.Context()), "effects").Val()) }
