package tasks

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/asynqwire"
)

// last is how long the tasks may take that are left when the nemesis has ended: those of killed workers are taken back after silent, and
// those whose acknowledgement a failover has lost by asynq's recoverer, after one to two minutes. Tasks that fail fast and share a key
// are retried in the same seconds, and only one of them gets it.
const last = 5 * time.Minute

// run produces the tasks while the nemesis is at work, and judges what came of them.
func (s *system) run(total time.Duration) Row {
	s.Helper()
	if err := s.producer.send(s.Context(), s.tasks[0]); err != nil {
		s.Fatal(err)
	}
	s.await("the first task", limit, func(context.Context) string { return strings.Repeat("it has no effect", 1-min(s.done(), 1)) })
	produced := make(chan error, 1)
	go func() { produced <- s.producer.Produce(s.Context(), total) }()
	began := time.Now()
	s.torture(total)
	if err := <-produced; err != nil {
		s.Error(err)
	}
	s.Logf("%d of %d tasks are done when all are produced, after %v", s.done(), len(s.tasks), time.Since(began).Round(time.Millisecond))
	if s.control() {
		return s.judgeControl()
	}
	if !*runLong {
		s.ageLeases()
	}
	s.await("the queues are empty", last, s.queued)
	s.Logf("the queues are empty after %v", time.Since(began).Round(time.Millisecond))
	s.resend(time.Time{}, time.Now())
	s.await("the queues are empty again", last, s.queued)
	s.Logf("all is done after %v", time.Since(began).Round(time.Millisecond))
	left := 0
	s.await("nobody waits or holds a key", limit, func(ctx context.Context) string {
		names := s.remains(ctx)
		left = len(names)
		return strings.Join(names[:min(left, 5)], " ")
	})
	succeeded, archived := s.counted()
	s.stopWorkers()
	return s.judge(succeeded, left+archived)
}

// ageLeases lets asynq recover at once, and not one to two minutes later, the tasks whose acknowledgement a failover has lost, or whose
// worker was killed. To be sure that no living worker has them, all are ended in order first, and others are started then.
func (s *system) ageLeases() {
	s.Helper()
	s.stopWorkers()
	for queue := range Queues {
		lease := asynqwire.Lease(queue)
		for _, id := range s.redis.ZRange(s.Context(), lease, 0, -1).Val() {
			s.redis.ZAddXX(s.Context(), lease, redis.Z{Score: float64(time.Now().Add(-time.Minute).Unix()), Member: id})
		}
	}
	for w := range s.workers {
		s.startWorker(w)
	}
}

func (s *system) control() bool { return Subjects[s.subject].Shows != nil }

// judgeControl judges a control once it is done, or no task has been for a while. It has no outbox: a task is lost that is in no queue and
// has had no effect. What still waits in a queue then is not waited for, so it counts as nothing.
func (s *system) judgeControl() Row {
	s.Helper()
	for done, since := s.done(), time.Now(); done < len(s.tasks) && time.Since(since) < 5*time.Second; time.Sleep(50 * time.Millisecond) {
		if n := s.done(); n > done {
			done, since = n, time.Now()
		}
	}
	for w := range s.workers {
		s.killWorker(w)
	}
	lost, err := s.producer.Missing(s.Context(), s.ledger, s.sent(time.Time{}, time.Now()))
	if err != nil {
		s.Error(err)
	}
	row := s.judge(0, 0)
	row.Lost, row.Miscounted = len(lost), 0
	return row
}

// done returns how many tasks have had their effect.
func (s *system) done() int {
	s.Helper()
	n, err := s.ledger.Done(s.Context())
	if err != nil {
		s.Fatal(err)
	}
	return n
}

// queued says what the queues have, apart from the archive.
func (s *system) queued(context.Context) string {
	for queue := range Queues {
		info, err := s.inspect.GetQueueInfo(queue)
		if err != nil {
			return err.Error()
		}
		if info.Size > info.Archived {
			return fmt.Sprintf("%s has %d pending, %d active, %d scheduled, %d waiting", queue, info.Pending, info.Active, info.Scheduled, info.Retry)
		}
	}
	return ""
}

// counted returns how many successes asynq has counted, and how many tasks are in the archive.
func (s *system) counted() (succeeded, archived int) {
	s.Helper()
	for queue := range Queues {
		info, err := s.inspect.GetQueueInfo(queue)
		if err != nil {
			s.Fatal(err)
		}
		succeeded += info.ProcessedTotal - info.FailedTotal
		archived += info.Archived
		tasks, _ := s.inspect.ListArchivedTasks(queue)
		for _, t := range tasks {
			s.Logf("task %s is in the archive: %s", t.ID, t.LastErr)
		}
	}
	return succeeded, archived
}

// remains returns the names that say who waits for a key or holds one.
func (s *system) remains(ctx context.Context) (left []string) {
	found := s.redis.Scan(ctx, 0, "railtoken:*", 1000).Iterator()
	for found.Next(ctx) {
		switch name := found.Val(); {
		case strings.HasSuffix(name, "}:fence"), strings.HasSuffix(name, "}:notify"), strings.HasPrefix(name, "railtoken:worker"),
			strings.HasPrefix(name, "railtoken:history:"), strings.Contains(name, "}:deposed:"), name == "railtoken:lock-store": // they expire, and say nothing of now
		default:
			left = append(left, name)
		}
	}
	if err := found.Err(); err != nil {
		left = append(left, err.Error())
	}
	slices.Sort(left)
	return left
}

// resend sends those tasks anew that were sent in a time and are gone.
func (s *system) resend(from, to time.Time) {
	s.Helper()
	if s.control() {
		return
	}
	s.outbox.Lock() // or two would send the same
	defer s.outbox.Unlock()
	if err := s.producer.Resend(s.Context(), s.ledger, s.sent(from, to)); err != nil {
		s.Error(err)
	}
}

// sent returns which tasks were sent in a time.
func (s *system) sent(from, to time.Time) (numbers []int) {
	sent, _ := s.producer.Sent()
	for n, sent := range sent {
		if sent.To.After(from) && sent.From.Before(to) {
			numbers = append(numbers, n)
		}
	}
	slices.Sort(numbers)
	return numbers
}

func (s *system) judge(succeeded, left int) Row {
	s.Helper()
	books, err := s.ledger.Read(s.Context(), s.tasks)
	if err != nil {
		s.Fatal(err)
	}
	sent, gone := s.producer.Sent()
	f := Facts{
		Tasks: s.tasks, Sent: sent, Gone: gone, Books: books, Failovers: s.failovers, Steps: s.steps, Succeeded: succeeded, Left: left,
	}
	row := Judge(f)
	row.Subject, row.Events = Subjects[s.subject], s.events
	return row
}
