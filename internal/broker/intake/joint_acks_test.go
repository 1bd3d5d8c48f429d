package intake_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/broker"
	"github.com/railtoken/railtoken/internal/broker/intake"
	"github.com/railtoken/railtoken/internal/testing/redistest"
)

// strictText is a script of asynq's that fails for one task.
const strictText = `if ARGV[1] == 'default4' then
  return redis.error_reply('ERR strict')
end
` + doneText

// onOne returns a client of one Redis, and onCluster one of a Redis Cluster.
func onOne(t *testing.T, m *miniredis.Miniredis) redis.UniversalClient {
	t.Helper()
	return redistest.Patient(t, m)
}

func onCluster(t *testing.T, m *miniredis.Miniredis) redis.UniversalClient {
	t.Helper()
	return redistest.VirtualCluster(t, m)
}

// acknowledgements makes acknowledgements of the tasks default0 to default7 of an Intake with eight slots, at the same
// time. It returns their errors, and how many of them were in the largest command.
func acknowledgements(
	t *testing.T, on func(*testing.T, *miniredis.Miniredis) redis.UniversalClient, spoil func(client *redis.Client),
	of func(id string) intake.Acknowledgement,
) (admin *redis.Client, errs map[string]error, largest int) {
	t.Helper()
	m, admin := redistest.Virtual(t)
	loader := on(t, m)
	ctx := t.Context()
	enqueue(t, admin, "default", 10)
	in := intake.New(loader, intake.Options{Slots: 8})
	if _, err := in.Fetch(ctx, "default"); err != nil {
		t.Fatal(err)
	}
	for range 8 {
		if _, ok := in.Take(); !ok {
			t.Fatal("a task is missing")
		}
	}
	spoil(admin)
	hold := make(chan struct{})
	var mu sync.Mutex
	loader.AddHook(redistest.Hook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		<-hold
		tasks := map[string]bool{}
		for _, arg := range cmd.Args() {
			if key, ok := arg.(string); ok && strings.HasPrefix(key, "asynq:{default}:t:") {
				tasks[key] = true
			}
		}
		mu.Lock()
		largest = max(largest, len(tasks))
		mu.Unlock()
		return next(ctx, cmd)
	}))
	errs = map[string]error{}
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			id := fmt.Sprint("default", i)
			ok, err := in.Acknowledge(ctx, of(id))
			mu.Lock()
			defer mu.Unlock()
			errs[id] = err
			if !ok {
				t.Errorf("%s was not acknowledged", id)
			}
		})
		synctest.Wait()
	}
	close(hold)
	all.Wait()
	time.Sleep(time.Second) // virtual: what came and is not asked for goes back
	synctest.Wait()
	return admin, errs, largest
}

func TestAFailedAcknowledgementLeavesTheOthers(t *testing.T) {
	t.Parallel()
	for name, on := range map[string]func(*testing.T, *miniredis.Miniredis) redis.UniversalClient{"one Redis": onOne, "Cluster": onCluster} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { failedAcknowledgement(t, on) })
		})
	}
}

func failedAcknowledgement(t *testing.T, on func(*testing.T, *miniredis.Miniredis) redis.UniversalClient) {
	t.Helper()
	client, errs, largest := acknowledgements(t, on, func(client *redis.Client) {
		client.HSet(t.Context(), "asynq:{default}:t:default3", "pending_since", "another")
	}, func(id string) intake.Acknowledgement {
		return intake.Acknowledgement{
			Queue: "default", ID: id, Text: strictText,
			Keys: []string{"asynq:{default}:t:" + id, "asynq:{default}:active"}, Args: []any{id},
		}
	})
	if largest != 5 { // three were on the way
		t.Errorf("%d acknowledgements are in one command, want 5", largest)
	}
	for id, err := range errs {
		want := map[string]string{"default3": "NOT FOUND", "default4": "ERR strict"}[id]
		if got := fmt.Sprint(err); want == "" && err != nil || want != "" && got != want {
			t.Errorf("%s: %v, want %q", id, err, want)
		}
	}
	active := client.LRange(t.Context(), "asynq:{default}:active", 0, -1).Val()
	slices.Sort(active)
	if want := []string{"default3", "default4"}; !slices.Equal(active, want) {
		t.Errorf("active are %v, want %v", active, want)
	}
	if pending := client.LLen(t.Context(), "asynq:{default}:pending").Val(); pending != 2 {
		t.Errorf("%d tasks are pending, want the 2 that were fetched and not asked for", pending)
	}
}

func TestRunsAreDoneInOneCall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client, errs, _ := acknowledgements(t, onOne, func(client *redis.Client) {
			client.LRem(t.Context(), "asynq:{default}:active", 0, "default5")
		}, func(id string) intake.Acknowledgement {
			day := "asynq:{default}:processed:2026-01-01"
			if id == "default7" { // at midnight
				day = "asynq:{default}:processed:2026-01-02"
			}
			return intake.Acknowledgement{
				Queue: "default", ID: id, Done: true,
				Keys: []string{
					"asynq:{default}:active", "asynq:{default}:lease", "asynq:{default}:t:" + id, day, "asynq:{default}:processed",
				},
				Args: []any{id, time.Now().Add(time.Hour).Unix(), int64(1<<63 - 1)},
			}
		})
		for id, err := range errs {
			if wrong := id == "default5"; wrong != (err != nil && strings.Contains(err.Error(), "NOT FOUND")) {
				t.Errorf("%s: %v", id, err)
			}
		}
		ctx := t.Context()
		for key, want := range map[string]string{":2026-01-01": "6", ":2026-01-02": "1", "": "7"} {
			if got := client.Get(ctx, "asynq:{default}:processed"+key).Val(); got != want {
				t.Errorf("processed%s is %s, want %s", key, got, want)
			}
			if ttl := client.TTL(ctx, "asynq:{default}:processed"+key).Val(); (ttl > 0) != (key != "") {
				t.Errorf("processed%s expires in %v", key, ttl)
			}
		}
		if n := client.LLen(ctx, "asynq:{default}:active").Val() + client.ZCard(ctx, "asynq:{default}:lease").Val(); n != 1 {
			t.Errorf("%d tasks are active or have leases, want the lease of the one that was lost", n)
		}
		if tasks := client.Keys(ctx, "asynq:{default}:t:*").Val(); len(tasks) != 3 {
			t.Errorf("tasks left: %v, want two pending ones and the one that was lost", tasks)
		}
	})
}

// asynq counts in a number of 64 bits, and begins anew.
func TestDoneCountsAsAsynqDoes(t *testing.T) {
	t.Parallel()
	counted := func(attached bool) (counts map[string]string) {
		client := redistest.Start(t).Client(t)
		ctx := t.Context()
		client.Set(ctx, "asynq:{default}:processed", int64(1<<63-1), 0)
		done := make(chan struct{})
		handler := func(context.Context, *asynq.Task) error {
			close(done)
			return nil
		}
		if attached {
			serve(t, client, asynq.Config{Concurrency: 1}, broker.Options{}, handler)
		} else {
			s := asynq.NewServerFromRedisClient(client, asynq.Config{Concurrency: 1, LogLevel: asynq.FatalLevel})
			if err := s.Start(asynq.HandlerFunc(handler)); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(s.Shutdown)
		}
		enqueue(t, client, "default", 1)
		redistest.Receive(t, done, patience)
		eventually(t, "it is done", func() bool { return len(client.Keys(ctx, "asynq:{default}:t:*").Val()) == 0 })
		counts = map[string]string{}
		for _, key := range client.Keys(ctx, "asynq:{default}:*").Val() {
			counts[key] = fmt.Sprint(client.Get(ctx, key).Val(), client.TTL(ctx, key).Val().Round(time.Minute))
		}
		return counts
	}
	if ours, theirs := counted(true), counted(false); !maps.Equal(ours, theirs) || len(ours) == 0 {
		t.Errorf("Redis has %v, and after asynq's own script %v", ours, theirs)
	}
}

// A count that somebody has overwritten must not leave the hashes of tasks that are done.
func TestABrokenCountLeavesNoDoneTask(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const first, second = "asynq:{default}:processed:2026-01-01", "asynq:{default}:processed:2026-01-02"
		client, errs, _ := acknowledgements(t, onOne, func(client *redis.Client) {
			client.Set(t.Context(), first, "no number", 0)
		}, func(id string) intake.Acknowledgement {
			day := first
			if id >= "default4" { // after midnight
				day = second
			}
			return intake.Acknowledgement{
				Queue: "default", ID: id, Done: true,
				Keys: []string{
					"asynq:{default}:active", "asynq:{default}:lease", "asynq:{default}:t:" + id, day, "asynq:{default}:processed",
				},
				Args: []any{id, time.Now().Add(time.Hour).Unix(), int64(1<<63 - 1)},
			}
		})
		for id, err := range errs {
			if client.Exists(t.Context(), "asynq:{default}:t:"+id).Val() != 0 {
				t.Errorf("the hash of %s is left, with the error %v", id, err)
			}
		}
		if n := client.ZCard(t.Context(), "asynq:{default}:lease").Val(); n != 0 {
			t.Errorf("%d leases are left", n)
		}
	})
}
