package line_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/line"
	"github.com/railtoken/railtoken/internal/testing/linetest"
	"github.com/railtoken/railtoken/internal/testing/redistest"
)

// benched is a Queue on a Redis of its own.
func benched(b *testing.B) (*line.Engine, *asynq.Client, *redis.Client) {
	b.Helper()
	client := redistest.Start(b).Client(b)
	queue, err := line.New(client, line.Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = queue.Close() })
	return queue, asynq.NewClientFromRedisClient(client), client
}

// begunTask has been fetched by a worker.
func begunTask(b *testing.B, client *redis.Client, tasks *asynq.Client, id string) line.Task {
	b.Helper()
	info, err := tasks.Enqueue(asynq.NewTask("test", nil), asynq.TaskID(id), asynq.ProcessIn(time.Hour))
	if err != nil {
		b.Fatal(err)
	}
	t := line.Task{Queue: info.Queue, ID: info.ID}
	if err := linetest.Fetch(b.Context(), client, t); err != nil {
		b.Fatal(err)
	}
	return t
}

// BenchmarkParkAndWake parks a task on a key for which others wait already, and wakes the first.
func BenchmarkParkAndWake(b *testing.B) {
	for _, waiting := range []int{0, 1000} {
		b.Run(fmt.Sprint("behind ", waiting), func(b *testing.B) {
			queue, tasks, client := benched(b)
			for i := range waiting {
				if _, err := queue.Park(b.Context(), begunTask(b, client, tasks, fmt.Sprint("w", i)), "k",
					line.ParkOptions{RetryAfter: time.Hour}); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				b.StopTimer()
				task := begunTask(b, client, tasks, fmt.Sprint(i))
				b.StartTimer()
				if _, err := queue.Park(b.Context(), task, "k", line.ParkOptions{RetryAfter: time.Hour}); err != nil {
					b.Fatal(err)
				}
				if woken, err := queue.Wake(b.Context(), "k", line.WakeOptions{}); err != nil ||
					len(woken.Tasks) != 1 {
					b.Fatalf("woken %+v, %v", woken, err)
				}
			}
		})
	}
}

// BenchmarkPark parks tasks on a key for which others wait, and on one whose waiters are full: a park must not cost
// more for their number.
func BenchmarkPark(b *testing.B) {
	for _, waiting := range []int{1, 100_000} {
		for name, most := range map[string]int{"": 0, ", refused": waiting} {
			b.Run(fmt.Sprint(waiting, " waiting", name), func(b *testing.B) {
				queue, tasks, client := benched(b)
				for begin := 0; begin < waiting; begin += 1000 {
					_, err := client.Pipelined(b.Context(), func(pipe redis.Pipeliner) error {
						for i := begin; i < min(begin+1000, waiting); i++ {
							t := line.Task{Queue: "default", ID: fmt.Sprint("w", i)}
							at := redis.Z{Score: float64(time.Now().UnixMicro()), Member: entry(t)}
							pipe.HSet(b.Context(), hash(t), "state", "retry")
							pipe.ZAdd(b.Context(), "railtoken:waiters:{k}", at)
							pipe.ZAdd(b.Context(), "railtoken:parked", at)
						}
						return nil
					})
					if err != nil {
						b.Fatal(err)
					}
				}
				opts := line.ParkOptions{RetryAfter: 30 * time.Second, MaxWaiters: most}
				for i := 0; b.Loop(); i++ {
					b.StopTimer()
					task := begunTask(b, client, tasks, fmt.Sprint(i))
					b.StartTimer()
					if place, err := queue.Park(b.Context(), task, "k", opts); err != nil || place.Count != 1 {
						b.Fatalf("%+v, %v", place, err)
					}
					b.StopTimer()
					if err := client.ZRem(b.Context(), "railtoken:waiters:{k}", entry(task)).Err(); err != nil {
						b.Fatal(err)
					}
					b.StartTimer()
				}
			})
		}
	}
}

// BenchmarkJoin joins the line of a key as the only one, and leaves it.
func BenchmarkJoin(b *testing.B) {
	queue, tasks, client := benched(b)
	task := begunTask(b, client, tasks, "id")
	b.ReportAllocs()
	for b.Loop() {
		if turn, err := queue.Join(b.Context(), task, "k", line.JoinOptions{}); err != nil || turn.Ahead != 0 {
			b.Fatalf("turn %+v, %v", turn, err)
		}
		if _, err := queue.Remove(b.Context(), task, "k"); err != nil {
			b.Fatal(err)
		}
	}
}
