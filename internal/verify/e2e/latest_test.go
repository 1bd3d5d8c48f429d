package e2e_test

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/attach"
	"github.com/railtoken/railtoken/internal/testing/redistest"
)

// Eight producers give the articles new prices while workers are killed. Half of the prices are due at once.
func TestTheLatestPriceOfEachArticleRunsLast(t *testing.T) {
	t.Parallel()
	const producers, articles = 8, 100
	server, dbServer := startShared(t), redistest.Start(t)
	client, db := named(t, server.Client(t)), dbServer.Client(t)
	start := func() *child {
		return startChild(t, server.Addr(), dbServer.Addr(), false,
			"RAILTOKEN_QUEUES=audit", "RAILTOKEN_CONCURRENCY=16", "RAILTOKEN_LOCK_TTL=2s", "RAILTOKEN_RECOVERY_AFTER=10s")
	}
	workers := []*child{start(), start(), start()}

	var of [articles]struct {
		sync.Mutex // so that one price is accepted after another

		n int
	}
	var enqueued atomic.Int64
	var all sync.WaitGroup
	for p := range producers {
		producer, err := attach.NewProducer(client, attach.ProducerOptions{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = producer.Close() })
		all.Go(func() {
			random := rand.New(rand.NewPCG(*soakSeed, uint64(p)))
			tick := time.NewTicker(repriced * producers / prices)
			defer tick.Stop()
			for range prices / producers {
				<-tick.C
				article := random.IntN(articles)
				a, latest := &of[article], attach.Latest{Quiet: time.Second, Most: 3 * time.Second}
				if article%2 == 0 {
					latest = attach.Latest{}
				}
				a.Lock()
				a.n++
				task := asynq.NewTask("work", fmt.Appendf(nil, `{"order":"article:%d","task":"%d/%d"}`, article, article, a.n))
				_, err := producer.EnqueueContext(t.Context(), task, asynq.Queue("audit"), asynq.MaxRetry(100),
					attach.Keys("article:"+strconv.Itoa(article)), latest)
				a.Unlock()
				if err != nil {
					t.Error(err)
					return
				}
				enqueued.Add(1)
			}
		})
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		all.Wait()
	}()
	kills, ended, random := 0, false, rand.New(rand.NewPCG(*soakSeed, 99))
	for tick := time.NewTicker(*soakEvery); !ended || kills < 2; kills++ {
		select {
		case <-tick.C:
		case <-done:
			tick.Stop()
			ended = true
		}
		victim := &workers[random.IntN(len(workers))]
		(*victim).kill()
		if err := db.SAdd(t.Context(), "dead", (*victim).name).Err(); err != nil {
			t.Fatal(err)
		}
		*victim = start()
	}
	within(t, recoveryPatience, "nothing waits any more", func() bool {
		return client.LLen(t.Context(), "asynq:{audit}:pending").Val()+client.LLen(t.Context(), "asynq:{audit}:active").Val()+
			client.ZCard(t.Context(), "asynq:{audit}:retry").Val()+client.ZCard(t.Context(), "asynq:{audit}:scheduled").Val() == 0
	})
	var last [articles]int
	runs := db.LRange(t.Context(), "started", 0, -1).Val()
	for _, run := range runs {
		name, number, _ := strings.Cut(run, "/")
		article, err := strconv.Atoi(name)
		if err != nil {
			t.Fatal(err)
		}
		n, err := strconv.Atoi(number)
		if err != nil {
			t.Fatal(err)
		}
		if n < last[article] {
			t.Errorf("price %d of article %d runs after price %d", n, article, last[article])
		}
		last[article] = n
	}
	for i := range of {
		if of[i].n == 0 {
			continue
		}
		if last[i] != of[i].n || db.HGet(t.Context(), "effects", fmt.Sprintf("%d/%d", i, of[i].n)).Val() != "1" {
			t.Errorf("of article %d, price %d ran last, want %d", i, last[i], of[i].n)
		}
	}
	if n := db.Get(t.Context(), "overlaps").Val(); n != "" {
		t.Errorf("%s runs overlapped", n)
	}
	t.Logf("%d prices, %d runs, %d kills", enqueued.Load(), len(runs), kills)
	if int(enqueued.Load()) != prices/producers*producers || len(runs) >= prices {
		t.Error("that shows nothing")
	}
}
