package e2e_test

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/attach"
	"github.com/railtoken/railtoken/internal/testing/redistest"
)

// scheduleVariable makes a worker process one of several with a schedule: a task each second, of a queue that has no worker.
const scheduleVariable = "E2E_SCHEDULE"

// ticking makes a scheduler whose tasks say which process has fired them.
func ticking(client redis.UniversalClient) (attach.Scheduler, error) {
	payload, err := json.Marshal(order{Task: os.Getenv(nameVariable)})
	if err != nil {
		return nil, err
	}
	s := asynq.NewSchedulerFromRedisClient(client, &asynq.SchedulerOpts{LogLevel: asynq.FatalLevel})
	_, err = s.Register("@every 1s", asynq.NewTask("tick", payload), asynq.Queue("ticks"))
	return s, err
}

// tick is a firing: who made it, and when.
type tick struct {
	by string
	at time.Time
}

// ticks returns all firings, the first one first.
func ticks(t *testing.T, client *redis.Client) []tick {
	t.Helper()
	ids := client.LRange(t.Context(), "asynq:{ticks}:pending", 0, -1).Val()
	all := make([]tick, len(ids))
	for i, id := range ids {
		info, err := asynq.NewInspectorFromRedisClient(client).GetTaskInfo("ticks", id)
		if err != nil {
			t.Fatal(err)
		}
		var o order
		if err := json.Unmarshal(info.Payload, &o); err != nil {
			t.Fatal(err)
		}
		ns, err := strconv.ParseInt(client.HGet(t.Context(), "asynq:{ticks}:t:"+id, "pending_since").Val(), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		all[len(all)-1-i] = tick{o.Task, time.Unix(0, ns)}
	}
	return all
}

func TestReplicasFireEachTickOnce(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
	db := redistest.Start(t)
	client := server.Client(t)
	all := map[string]*child{}
	begin := func() {
		c := startChild(t, server.Addr(), db.Addr(), false, scheduleVariable+"=1")
		all[c.name] = c
	}
	for range 3 {
		begin()
	}
	// fire waits until another process than before has fired twice, and returns it.
	fire := func(before string) string {
		for began := time.Now(); time.Since(began) < limit; <-time.After(250 * time.Millisecond) {
			n, by := 0, ""
			for _, tick := range ticks(t, client) {
				by = tick.by
				n++
				if by == before {
					n = 0
				}
			}
			if n >= 2 {
				return by
			}
		}
		t.Fatalf("no ticks after those of %s", before)
		return ""
	}
	signal := func(name string, s syscall.Signal) {
		if err := all[name].cmd.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
	}

	first := fire("")
	all[first].kill()
	second := fire(first)
	signal(second, syscall.SIGSTOP)
	third := fire(second)
	signal(second, syscall.SIGCONT)
	all[third].kill()
	fourth := fire(third)
	begin()
	server.Kill()
	<-time.After(7 * time.Second) // the outage lasts for longer than a lease
	server.Restart(t)
	fired := ticks(t, client)
	until(t, "ticks after the outage", func() bool { return client.LLen(t.Context(), "asynq:{ticks}:pending").Val() >= int64(len(fired)+2) })
	fired = ticks(t, client)
	fifth := fired[len(fired)-1].by
	all[fifth].stop() // in order
	fire(fifth)

	fired = ticks(t, client)
	var gaps []string
	for began, i := 0, 1; i < len(fired); i++ {
		before, next := fired[i-1], fired[i]
		gap := next.at.Sub(before.at)
		if gap > 1500*time.Millisecond {
			gaps = append(gaps, fmt.Sprintf("%.1f s", gap.Seconds()))
		}
		if next.by == before.by {
			if n, took := i-began, next.at.Sub(fired[began].at); n > int(took.Seconds())+1 {
				t.Errorf("%s fires %d times in %v", next.by, n+1, took)
			}
			continue
		}
		began = i
		if next.at.Unix() <= before.at.Unix() || gap > 20*time.Second {
			t.Errorf("%s fires %v after %s", next.by, gap, before.by)
		}
	}
	t.Logf("%d ticks by %s, %s, %s, %s, %s; gaps of %v", len(fired), first, second, third, fourth, fifth, gaps)
}
