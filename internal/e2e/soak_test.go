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

	"github.com/railtoken/railtoken/internal/redistest"
)

// The size of the soak: "make soak" runs a large one. The variables are those of scripts/soak.sh.
var (
	soakTasks = flag.Int("tasks", 3000, "`number` of tasks of the soak")
	soakKeys  = flag.Int("keys", 60, "`number` of keys that they share, by Zipf 1.1")
	soakKills = flag.Duration("kills", 6*time.Second, "how `long` worker processes are killed")
	soakEvery = flag.Duration("every", time.Second, "`time` from one kill to the next")
	soakSeed  = flag.Uint64("seed", 1, "`seed` of the keys, the order of the tasks and the victims")
	soakWait  = flag.Bool("wait", false, "wait until asynq brings the tasks of killed processes back, which takes two minutes, instead of ageing their leases")
)

const (
	soakProcesses = 3
	// recoveryPatience bounds how long the workers may take for what is left after the last kill, when they wait for asynq, which
	// recovers a task 60 to 120 s after its worker was killed. With aged leases the usual limit holds: who is not woken comes back too late.
	recoveryPatience = 5 * time.Minute
)

// soak is the servers and the worker processes of one soak.
type soak struct {
	*testing.T
	server, dbServer *redistest.Server
	client, db       *redis.Client
	queues           []string
	workers          []*child
}

func TestASoakOfKilledWorkersDoesEachTaskOnceAndStrandsNobody(t *testing.T) {
	t.Parallel()
	server, dbServer := redistest.Start(t), redistest.Start(t)
	s := &soak{
		T: t, server: server, dbServer: dbServer, client: server.Client(t), db: dbServer.Client(t), queues: []string{"audit", "allocate"},
	}
	random := rand.New(rand.NewPCG(*soakSeed, 0))
	began := time.Now()
	hottest := s.enqueue(random)
	t.Logf("%d tasks on %d keys, %d of them on one, enqueued in %v", *soakTasks, *soakKeys, hottest, time.Since(began).Round(time.Millisecond))

	began = time.Now()
	for range soakProcesses {
		s.workers = append(s.workers, s.start())
	}
	kills := s.kill(random)
	done := s.done()
	t.Logf("%d kills in %v: %d tasks were done meanwhile, %.0f/s", kills, time.Since(began).Round(time.Millisecond), done,
		float64(done)/time.Since(began).Seconds())
	if kills < 3 || kills < int(*soakKills / *soakEvery)/2 {
		t.Errorf("only %d kills in %v: the workers were done too soon", kills, *soakKills)
	}
	if !*soakWait {
		s.ageLeases()
	}
	s.finish(began)
	s.check()
}

// enqueue adds the tasks, from several goroutines, in a random order of their keys. It returns how many share the most frequent key.
func (s *soak) enqueue(random *rand.Rand) (hottest int) {
	s.Helper()
	zipf := rand.NewZipf(random, 1.1, 1, uint64(*soakKeys-1))
	keys, count := make([]uint64, *soakTasks), map[uint64]int{}
	for i := range keys {
		keys[i] = zipf.Uint64()
		count[keys[i]]++
		hottest = max(hottest, count[keys[i]])
	}
	producer := asynq.NewClientFromRedisClient(s.client)
	const producers = 8
	failed := make([]error, producers)
	var all sync.WaitGroup
	for p := range producers {
		all.Go(func() {
			for i := p; i < len(keys) && failed[p] == nil; i += producers {
				payload := fmt.Appendf(nil, `{"order":"order:%d","task":"%d"}`, keys[i], i)
				_, failed[p] = producer.EnqueueContext(s.Context(), asynq.NewTask("work", payload),
					asynq.Queue(s.queues[i%len(s.queues)]), asynq.MaxRetry(100))
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
	return startChild(s.T, s.server.Addr(), s.dbServer.Addr(), false, "RAILTOKEN_QUEUES=audit,allocate", "RAILTOKEN_CONCURRENCY=16",
		"RAILTOKEN_LOCK_TTL=2s")
}

// kill kills one worker process after another, each replaced at once, for as long as wanted, or until all is done. It returns how many.
func (s *soak) kill(random *rand.Rand) (kills int) {
	s.Helper()
	tick := time.NewTicker(*soakEvery)
	defer tick.Stop()
	for began := time.Now(); time.Since(began) < *soakKills && s.done() < *soakTasks; kills++ {
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

// finish waits until every task is done, and tells how quickly they were.
func (s *soak) finish(began time.Time) {
	s.Helper()
	last, most, patience := time.Now(), s.done(), limit
	if *soakWait {
		patience = recoveryPatience
	}
	within(s.T, patience, "every task is done", func() bool {
		if n := s.done(); n > most {
			last, most = time.Now(), n
		}
		return most >= *soakTasks
	})
	took := last.Sub(began)
	runs := s.db.LLen(s.Context(), "started").Val()
	s.Logf("%d tasks in %v, %.0f/s; %d runs of handlers, %.4f for each task", *soakTasks, took.Round(time.Millisecond),
		float64(*soakTasks)/took.Seconds(), runs, float64(runs)/float64(*soakTasks))
}

// check checks the ledger, and that nothing and nobody remains.
func (s *soak) check() {
	s.Helper()
	effects := s.db.HGetAll(s.Context(), "effects").Val()
	for i := range *soakTasks {
		if n := effects[strconv.Itoa(i)]; n != "1" {
			s.Errorf("task %d was done %q times", i, n)
		}
	}
	checkEffects(s.T, s.db, *soakTasks)
	drained(s.T, s.client, "audit", "allocate")
	nothingRemains(s.T, s.client)
}

// done returns how many tasks have had their effect.
func (s *soak) done() int { return int(s.db.HLen(context.WithoutCancel(s.Context()), "effects").Val()) }
