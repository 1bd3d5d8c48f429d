package broker

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/asynqwire"
	"github.com/railtoken/railtoken/internal/lanes"
	"github.com/railtoken/railtoken/internal/testing/redistest"
)

// A master hangs, which has tasks for later. In the lanes of the others a server still sees tasks without a notice, and those that are due.
func TestAMasterThatHangsHidesNoOtherLane(t *testing.T) {
	t.Parallel()
	for _, patient := range []bool{true, false} {
		t.Run(fmt.Sprint("timeouts=", patient), func(t *testing.T) {
			t.Parallel()
			hidesNoOtherLane(t, patient)
		})
	}
}

func hidesNoOtherLane(t *testing.T, patient bool) {
	t.Helper()
	ctx, l := t.Context(), newLanes(t, manyLanes)
	c := robustCluster(t, 5) // so that one has no keys of asynq's own
	client := c.Client(t, func(o *redis.ClusterOptions) { o.ContextTimeoutEnabled = patient })
	began := make(chan string, 100)
	conn, _ := inLanesOn(t, client, Options{Lanes: l}, asynq.Config{Queues: someQueues, Concurrency: 8}, func(ctx context.Context, _ *asynq.Task) error {
		queue, _ := asynq.GetQueueName(ctx)
		began <- queue
		return nil
	})
	fill(t, client, 1, []string{l.Queue("orders", 0)})
	redistest.Receive(t, began, patience)
	hung := without(t, c, "asynq:queues", asynqwire.ServersKey, asynqwire.WorkersKey, "asynq:servers:{*")
	theirs, others := lanesOn(t, client, l, hung)
	fill(t, client, 1, []string{l.Queue("orders", theirs[0]), l.Queue("mail", theirs[1])}, asynq.ProcessIn(time.Hour))
	<-time.After(laneLooks * laneLookEach) // the server does, too
	hung.Pause()
	t.Cleanup(sync.OnceFunc(hung.Resume))
	for range 3 { // those of asynq's own are sent now and then, whatever there is
		key := asynqwire.Prefix("orders")
		forward := conn.EvalSha(ctx, sumNamed(t, forwardScript), []string{asynqwire.Scheduled("orders"), asynqwire.Pending("orders")}, 0, key+"t:", 0, key+"g:")
		if n, err := forward.Int(); n != 0 || err != nil {
			t.Errorf("where only the master that hangs has tasks, %d are forwarded, and asynq gets %v: it would go on to no other queue", n, err)
		}
	}
	for i, opts := range [][]asynq.Option{nil, {asynq.ProcessIn(time.Second)}} {
		var queues []string
		for _, lane := range others[10*i : 10*i+10] {
			queues = append(queues, l.Queue("audit", lane))
		}
		at := time.Now()
		fill(t, client, 1, queues, opts...)
		for left := slices.Clone(queues); len(left) > 0; {
			queue := redistest.Receive(t, began, patience)
			left = slices.DeleteFunc(left, func(one string) bool { return one == queue })
		}
		took := time.Since(at)
		t.Logf("tasks with the options %v begin within %v", opts, took)
		if took > time.Duration(i)*2*time.Second+laneLooks*laneLookEach+2*time.Second {
			t.Errorf("tasks with the options %v begin only after %v while another master hangs", opts, took)
		}
	}
	hung.Resume()
	queue := l.Queue("mail", theirs[0])
	eventually(t, "it answers", func() bool { return client.Exists(ctx, asynqwire.Pending(queue)).Err() == nil })
	fill(t, client, 1, []string{queue})
	if got := redistest.Receive(t, began, patience); got != queue {
		t.Errorf("%s begins", got)
	}
}

// robustCluster starts a Cluster whose masters go on without one that hangs.
func robustCluster(t *testing.T, n int) *redistest.Cluster {
	t.Helper()
	c := redistest.StartCluster(t, n)
	for _, node := range c.Nodes() {
		for name, value := range map[string]string{"cluster-node-timeout": "60000", "cluster-require-full-coverage": "no"} {
			if err := node.Client(t).ConfigSet(t.Context(), name, value).Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
	return c
}

// lanesOn returns the lanes of a master, and those of the others.
func lanesOn(t *testing.T, client *redis.ClusterClient, l lanes.Lanes, master *redistest.Server) (theirs, others []int) {
	t.Helper()
	for lane := range l.Count() {
		of, err := client.MasterForKey(t.Context(), asynqwire.Pending(l.Queue("orders", lane)))
		if err != nil {
			t.Fatal(err)
		}
		if of.Options().Addr == master.Addr() {
			theirs = append(theirs, lane)
		} else {
			others = append(others, lane)
		}
	}
	return theirs, others
}

// without returns a master that has none of some keys.
func without(t *testing.T, c *redistest.Cluster, keys ...string) *redistest.Server {
	t.Helper()
	for _, node := range c.Nodes() {
		client := node.Client(t)
		if !slices.ContainsFunc(keys, func(key string) bool { return len(client.Keys(t.Context(), key).Val()) > 0 }) {
			return node
		}
	}
	t.Fatal("each master has one of the keys")
	return nil
}

// A lane is looked at in one of so many rounds, as many lanes in each, also after a round that is late; and a queue itself in each.
func TestLooksAreSpreadOverTheRounds(t *testing.T) {
	t.Parallel()
	const count, queues = 16, 3
	for round := range 20 {
		due := make(map[int]int)
		for i := range count {
			next := nextLook(i, count, round)
			if next <= round || next > round+laneLooks {
				t.Errorf("lane %d is looked at in round %d after %d", i, next, round)
			}
			due[next]++
		}
		for next, n := range due {
			if n != count/laneLooks {
				t.Errorf("%d lanes are looked at in round %d after %d", n, next, round)
			}
		}
		for i := count; i < count+queues; i++ {
			if next := nextLook(i, count, round); next != round+1 {
				t.Errorf("queue %d is looked at in round %d after %d", i, next, round)
			}
		}
	}
}
