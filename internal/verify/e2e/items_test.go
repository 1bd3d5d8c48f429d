package e2e_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/worker"
)

// The size of the soak of items: "make items" runs a large one.
var (
	itemsRuns    = flag.Int("items-runs", itemed, "`number` of tasks of items")
	itemsEach    = flag.Int("items-each", 40, "`number` of items of each")
	itemsStocks  = flag.Int("items-stocks", 200, "`number` of keys of stocks that the items share")
	itemsAudits  = flag.Int("items-audits", 5*itemed, "`number` of audits of the same orders")
	itemsWorkers = flag.Int("items-workers", 2, "`number` of worker processes")
	itemsKills   = flag.Int("items-kills", 1, "`number` of kills at least, as long as tasks are left")
	itemsEvery   = flag.Duration("items-every", 250*time.Millisecond, "`time` from one kill to the next")
	itemsControl = flag.Bool("items-control", false, "without the mark there must be doubles")
)

// stocked is how many pieces there are of each stock.
const stocked = 1_000_000

func TestASoakOfItemsLeavesTheStockExact(t *testing.T) {
	t.Parallel()
	for _, mark := range []string{"mark", "none"} {
		t.Run(mark, func(t *testing.T) {
			t.Parallel()
			server, dbServer := startShared(t), redistest.Start(t)
			s := &itemsSoak{
				soak: soak{
					T: t, server: server, dbServer: dbServer, client: named(t, server.Client(t)), db: dbServer.Client(t),
					queues: []string{"audit", "allocate"},
				},
				mark: mark,
			}
			s.run(rand.New(rand.NewPCG(*soakSeed, 0)))
		})
	}
}

// itemsSoak is a soak of allocations and audits.
type itemsSoak struct {
	soak
	mark string
	want map[string]int // how many pieces are taken of each stock
}

func (s *itemsSoak) run(random *rand.Rand) {
	s.Helper()
	s.enqueue(random)
	began := time.Now()
	for range *itemsWorkers {
		s.workers = append(s.workers, s.start())
	}
	kills := s.kill(random)
	s.Logf("%d kills in %v", kills, time.Since(began).Round(time.Millisecond))
	if kills < *itemsKills {
		s.Errorf("only %d kills, want %d: the workers were done too soon", kills, *itemsKills)
	}
	for _, w := range s.workers {
		w.stop()
	}
	aged := ageLeases(s.T, s.client, s.queues)
	for i := range s.workers {
		s.workers[i] = s.start()
	}
	drained(s.T, s.client, s.queues...)
	s.Logf("%d tasks were in the hands of killed processes; all was done after %v", aged,
		time.Since(began).Round(time.Millisecond))
	s.check()
	nothingRemains(s.T, s.client)
}

func (s *itemsSoak) enqueue(random *rand.Rand) {
	s.Helper()
	producer, err := worker.NewClient(at(s.server))
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { _ = producer.Close() })
	s.want = map[string]int{}
	orders := *itemsRuns * *itemsEach
	for n := range max(*itemsRuns, *itemsAudits) {
		if n < *itemsRuns {
			var a allocation
			for i := range *itemsEach {
				l := line{Order: "order:" + strconv.Itoa(n**itemsEach+i), Stock: "stock:" + strconv.Itoa(random.IntN(*itemsStocks))}
				s.want[l.Stock]++
				a.Lines = append(a.Lines, l)
			}
			if _, err := producer.Enqueue(s.Context(), "allocate", a, asynq.Queue("allocate"), asynq.MaxRetry(100)); err != nil {
				s.Fatal(err)
			}
		}
		for range (*itemsAudits + *itemsRuns - 1) / *itemsRuns {
			if n >= *itemsRuns {
				break
			}
			l := line{Order: "order:" + strconv.Itoa(random.IntN(orders))}
			if _, err := producer.Enqueue(s.Context(), "audit", l, asynq.Queue("audit"), asynq.MaxRetry(100)); err != nil {
				s.Fatal(err)
			}
		}
	}
	for stock := range s.want {
		if err := s.db.HSet(s.Context(), "stocks", stock, stocked).Err(); err != nil {
			s.Fatal(err)
		}
	}
}

// start starts a worker process.
func (s *itemsSoak) start() *child {
	s.Helper()
	return startChild(s.T, s.server.Addr(), s.dbServer.Addr(), false,
		"RAILTOKEN_QUEUES=audit,allocate", "RAILTOKEN_CONCURRENCY=4", "RAILTOKEN_LOCK_TTL=2s", itemsVariable+"="+s.mark)
}

// kill kills one worker process after another until all is done but what killed ones had in hand.
func (s *itemsSoak) kill(random *rand.Rand) (kills int) {
	s.Helper()
	until(s.T, "the first items have an effect", func() bool { return s.db.HLen(s.Context(), "effects").Val() > 0 })
	tick := time.NewTicker(*itemsEvery)
	defer tick.Stop()
	for began := time.Now(); time.Since(began) < recoveryPatience && s.left() > 0; kills++ {
		victim := &s.workers[random.IntN(len(s.workers))]
		(*victim).kill()
		if err := s.db.SAdd(s.Context(), "dead", (*victim).name).Err(); err != nil {
			s.Fatal(err)
		}
		*victim = s.start()
		<-tick.C
	}
	return kills
}

// left returns how many allocations have not begun yet.
func (s *itemsSoak) left() int {
	return int(s.client.LLen(s.Context(), "asynq:{allocate}:pending").Val())
}

func (s *itemsSoak) check() {
	s.Helper()
	effects := s.db.HGetAll(s.Context(), "effects").Val()
	if want := *itemsRuns * *itemsEach; len(effects) != want {
		s.Errorf("%d items had an effect, want %d", len(effects), want)
	}
	doubles := 0
	for _, n := range effects {
		times, err := strconv.Atoi(n)
		if err != nil {
			s.Fatal(err)
		}
		doubles += times - 1
	}
	wrong := 0
	for stock, left := range s.db.HGetAll(s.Context(), "stocks").Val() {
		if left != fmt.Sprint(stocked-s.want[stock]) {
			wrong++
		}
	}
	overlaps, _ := s.db.Get(s.Context(), "overlaps").Int()
	s.Logf("mark %q: %d items, %d doubles, %d of %d stocks are wrong, %d overlaps", s.mark, len(effects), doubles, wrong,
		len(s.want), overlaps)
	if overlaps > 0 {
		s.Errorf("%d overlaps", overlaps)
	}
	if s.mark == "mark" && (doubles > 0 || wrong > 0) {
		s.Errorf("%d doubles, and %d stocks are wrong", doubles, wrong)
	}
	if s.mark != "mark" && *itemsControl && doubles == 0 {
		s.Error("there are no doubles without the mark: the soak shows nothing")
	}
}
