package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/internal/asynqwire"
	"github.com/railtoken/railtoken/internal/line"
)

// typeHit is a type of tasks, with the keys that they hold and those for which they wait.
type typeHit struct {
	Type          string
	Held, Awaited []keyRow
}

// typesLike returns the types of tasks that hold keys or wait for them and have the text in their names; some says that not all
// waiting tasks were searched.
func (p *Page) typesLike(ctx context.Context, s *snapshot, text string, may func(string) bool) (found []typeHit, some bool, err error) {
	text = strings.ToLower(strings.TrimSpace(text))
	if text == "" {
		return nil, false, nil
	}
	waiting, err := p.waitingTypes(ctx, s.Waiters)
	if err != nil {
		return nil, false, err
	}
	rows := make(map[string]keyRow, len(s.Keys))
	hit := func(kind string) *typeHit {
		i := slices.IndexFunc(found, func(t typeHit) bool { return t.Type == kind })
		if i < 0 && len(found) < mostHits {
			i, found = len(found), append(found, typeHit{Type: kind})
		}
		if i < 0 {
			return nil
		}
		return &found[i]
	}
	add := func(keys *[]keyRow, k keyRow) {
		if len(*keys) < mostHits && !slices.ContainsFunc(*keys, func(other keyRow) bool { return other.Key == k.Key }) {
			*keys = append(*keys, k)
		}
	}
	like := func(kind, key string) bool {
		return kind != "" && strings.Contains(strings.ToLower(kind), text) && may(key)
	}
	for _, k := range s.Keys {
		rows[k.Key] = k
		if k.Holding != nil && like(k.Holding.Type, k.Key) {
			if t := hit(k.Holding.Type); t != nil {
				add(&t.Held, k)
			}
		}
	}
	for _, w := range s.Waiters {
		if kind := waiting.of[w.Task]; like(kind, w.Key) {
			if t := hit(kind); t != nil {
				add(&t.Awaited, rows[w.Key])
			}
		}
	}
	slices.SortFunc(found, func(a, b typeHit) int { return cmp.Compare(a.Type, b.Type) })
	return found, waiting.some || s.Truncated, nil
}

// types are those of waiting tasks; some says that there are others.
type types struct {
	of   map[delayqueue.Task]string
	some bool
}

// mostMessages is how many bytes are read to learn the types of waiting tasks: asynq keeps a type in one text with the payload.
const mostMessages = 8 << 20

// waitingTypes reads the types of waiting tasks, those with small payloads first.
func (p *Page) waitingTypes(ctx context.Context, waiters []delayqueue.Waiter) (types, error) {
	return read(ctx, &p.reads, "types", func(ctx context.Context) (types, error) {
		found := types{of: make(map[delayqueue.Task]string, len(waiters))}
		sizes := make(map[delayqueue.Task]int64, len(waiters))
		tasks := make([]delayqueue.Task, len(waiters))
		for i, w := range waiters {
			tasks[i] = w.Task
		}
		if err := askEach(ctx, p.opts.Tasks, tasks, func(pipe redis.Pipeliner, hash string) *redis.IntCmd {
			return pipe.HStrLen(ctx, hash, asynqwire.MessageField)
		}, func(t delayqueue.Task, size *redis.IntCmd) { sizes[t] = size.Val() }); err != nil {
			return found, err
		}
		slices.SortStableFunc(tasks, func(a, b delayqueue.Task) int { return cmp.Compare(sizes[a], sizes[b]) })
		sum := int64(0)
		few := slices.IndexFunc(tasks, func(t delayqueue.Task) bool { sum += sizes[t]; return sum > mostMessages })
		if few >= 0 {
			tasks, found.some = tasks[:few], true
		}
		return found, askEach(ctx, p.opts.Tasks, tasks, func(pipe redis.Pipeliner, hash string) *redis.StringCmd {
			return pipe.HGet(ctx, hash, asynqwire.MessageField)
		}, func(t delayqueue.Task, message *redis.StringCmd) { found.of[t] = line.OutlineOf(message.Val()).Type })
	})
}

// askEach sends a command about each task, in batches, and passes the replies to note.
func askEach[C redis.Cmder](
	ctx context.Context, client redis.UniversalClient, tasks []delayqueue.Task, send func(pipe redis.Pipeliner, hash string) C, note func(delayqueue.Task, C),
) error {
	for batch := range slices.Chunk(tasks, fieldsBatch) {
		replies := make([]C, len(batch))
		if _, err := client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
			for i, t := range batch {
				replies[i] = send(pipe, line.Task(t).Hash())
			}
			return nil
		}); err != nil && !errors.Is(err, redis.Nil) {
			return fmt.Errorf("read the types of waiting tasks: %w", err)
		}
		for i, t := range batch {
			note(t, replies[i])
		}
	}
	return nil
}
