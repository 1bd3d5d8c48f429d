package delayqueue_test

import (
	"errors"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/internal/line"
	"github.com/railtoken/railtoken/internal/testing/redistest"
)

// The queues and the keys lie in slots of different nodes.
func TestTheInspectorWorksOnACluster(t *testing.T) {
	t.Parallel()
	client := redistest.StartCluster(t, 3).Client(t)
	queue, err := delayqueue.New(client, delayqueue.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = queue.Close() })
	tasks, inspect := asynq.NewClientFromRedisClient(client), asynq.NewInspectorFromRedisClient(client)
	ctx, place := t.Context(), time.Now().Add(-time.Minute).UnixMicro()
	var all []delayqueue.Task
	for i, name := range []string{"default", "critical", "low", "default", "critical", "low"} {
		id, key := strconv.Itoa(i), "order:"+strconv.Itoa(i%2)
		if _, err := tasks.Enqueue(asynq.NewTask("test", nil), asynq.TaskID(id), asynq.Queue(name),
			asynq.ProcessIn(time.Hour)); err != nil {
			t.Fatal(err)
		}
		// What Park writes, whatever the way in which it does so.
		at, entry := place+int64(i), strconv.Itoa(len(name))+":"+name+id
		err := errors.Join(
			client.ZRem(ctx, "asynq:{"+name+"}:scheduled", id).Err(),
			client.ZAdd(ctx, "asynq:{"+name+"}:retry", redis.Z{Score: float64(time.Now().Add(time.Hour).Unix()), Member: id}).Err(),
			client.HSet(ctx, "asynq:{"+name+"}:t:"+id, "state", "retry").Err(),
			client.ZAdd(ctx, "railtoken:waiters:{"+key+"}", redis.Z{Score: float64(at), Member: entry}).Err(),
			client.ZAdd(ctx, "railtoken:parked", redis.Z{Score: float64(at), Member: entry}).Err(),
			client.HSet(ctx, "asynq:{"+name+"}:t:"+id, line.WaitField, line.Wait{
				Conflict: line.Conflict{Count: 2, First: time.UnixMicro(at)}, Place: at, Keys: []string{key},
			}.String()).Err(),
		)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, delayqueue.Task{Queue: name, ID: id})
	}
	order := func() (ids []string) {
		waiters, err := queue.Inspector().Waiters(ctx, "order:0", 10)
		if err != nil {
			t.Fatal(err)
		}
		for i, w := range waiters {
			if w.Position != i+1 || w.Conflicts != 2 || w.Next.IsZero() {
				t.Errorf("%+v", w)
			}
			ids = append(ids, w.Task.ID)
		}
		return ids
	}
	if got := order(); !slices.Equal(got, []string{"0", "2", "4"}) {
		t.Fatalf("in line are %v", got)
	}
	if err := errors.Join(queue.Inspector().PutFirst(ctx, "order:0", all[4]),
		queue.Inspector().PutLast(ctx, "order:0", all[0])); err != nil {
		t.Fatal(err)
	}
	if got := order(); !slices.Equal(got, []string{"4", "2", "0"}) {
		t.Errorf("after the moves in line are %v", got)
	}
	if err := queue.Inspector().Drop(ctx, all[2]); err != nil {
		t.Fatal(err)
	}
	if got := order(); !slices.Equal(got, []string{"4", "0"}) {
		t.Errorf("after the drop in line are %v", got)
	}
	if parked, err := queue.Inspector().Longest(ctx, 2); err != nil || len(parked) != 2 || parked[0].Task != all[0] ||
		parked[1].Task != all[1] {
		t.Errorf("longest wait %+v, %v", parked, err)
	}
	if got, err := queue.Inspector().Keys(ctx, 10); err != nil ||
		!slices.Equal(got, []delayqueue.AwaitedKey{{Key: "order:1", Waiters: 3}, {Key: "order:0", Waiters: 2}}) {
		t.Errorf("awaited are %+v, %v", got, err)
	}
	if n, err := queue.Inspector().Count(ctx); err != nil || n != 5 {
		t.Errorf("%d wait, %v", n, err)
	}
	for _, task := range all[3:] {
		if err := inspect.ArchiveTask(task.Queue, task.ID); err != nil {
			t.Fatal(err)
		}
	}
	if err := queue.Inspector().Replay(ctx, all[3]); err != nil {
		t.Error(err)
	}
	if n, err := queue.Inspector().ReplayAll(ctx, "low", 10, func(*asynq.TaskInfo) bool { return true }); err != nil ||
		n != 1 {
		t.Errorf("replayed %d, %v", n, err)
	}
	if err := queue.Inspector().Replay(ctx, all[3]); !errors.Is(err, delayqueue.ErrNotArchived) {
		t.Errorf("a second replay: %v", err)
	}
}
