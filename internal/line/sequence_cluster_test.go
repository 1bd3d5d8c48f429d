package line

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/internal/rediswire"
	"github.com/railtoken/railtoken/internal/testing/redistest"
)

// A line and the tasks in it lie in different slots, on different nodes.
func TestASequenceWorksOnARedisCluster(t *testing.T) {
	t.Parallel()
	client := redistest.StartCluster(t, 3).Client(t)
	q, err := New(client, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = q.Close() })

	const key, n = "order:1042", 6
	nodes := map[int]bool{rediswire.Slot(SequenceKey(key)) * 3 / 16384: true}
	var tasks []Task
	for i := range n {
		info, err := q.EnqueueInOrder(t.Context(), key, "test", nil, nil, asynq.Queue(fmt.Sprintf("q%d", i)))
		if err != nil {
			t.Fatal(err)
		}
		task := Task{Queue: info.Queue, ID: info.ID}
		tasks = append(tasks, task)
		nodes[rediswire.Slot(task.Hash())*3/16384] = true
		if n, err := client.ZCard(t.Context(), SequenceKey(key)).Result(); err != nil || n != int64(i+1) {
			t.Fatalf("%d are in line, %v", n, err)
		}
		turn, err := q.Join(t.Context(), task, key, JoinOptions{})
		if err != nil || turn.Ahead != i {
			t.Fatalf("task %d stands at %+v, %v", i, turn, err)
		}
	}
	if len(nodes) != 3 {
		t.Fatalf("the keys are on the nodes %v, want all", nodes)
	}
	if _, err := q.EnqueueInOrder(t.Context(), key, "test", nil, nil, asynq.Queue("q0"),
		asynq.TaskID(tasks[0].ID)); !errors.Is(err, asynq.ErrTaskIDConflict) {
		t.Errorf("the same ID again gives %v", err)
	}
	// The first ones are gone, the next one is not due yet.
	if err := q.inspect.DeleteTask(tasks[0].Queue, tasks[0].ID); err != nil {
		t.Fatal(err)
	}
	if err := q.inspect.ArchiveTask(tasks[1].Queue, tasks[1].ID); err != nil {
		t.Fatal(err)
	}
	again := time.Now().Add(time.Minute).Truncate(time.Second)
	client.HSet(t.Context(), tasks[2].Hash(), "state", "retry")
	client.ZIncrBy(t.Context(), "asynq:{q2}:retry", float64(again.Unix()), tasks[2].ID)
	turn, err := q.Join(t.Context(), tasks[n-1], key, JoinOptions{})
	if err != nil || turn.Ahead != n-3 || turn.First != tasks[2] || turn.FirstState != "retry" ||
		!turn.FirstAgain.Equal(again) {
		t.Errorf("the last stands at %+v, %v", turn, err)
	}
	for i := 2; i < n; i++ {
		left, err := q.Remove(t.Context(), tasks[i], key)
		if want := tasks[i+1 : min(i+3, n)]; err != nil || !slices.Equal(left.Next, want) {
			t.Errorf("after task %d: %+v, %v, want %v", i, left, err, want)
		}
	}
	if left := client.Exists(t.Context(), SequenceKey(key)).Val(); left != 0 {
		t.Error("the line is still there")
	}
}
