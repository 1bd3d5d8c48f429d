package ends

import (
	"context"
	_ "embed"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/asynqwire"
	"github.com/railtoken/railtoken/internal/rediswire"
)

var (
	//go:embed lua/found.lua
	foundSource string

	foundScript = redis.NewScript(rediswire.Compose(Functions, foundSource))
)

const (
	// batch is how many marks are taken over at a time, and how many archived tasks are looked at.
	batch = 64
	// overlap is how far back a look at an archive reaches before the last one: the clocks of other programs may differ by that.
	overlap = time.Minute
	// mostQueues is how many queues one look is for. If there are more, as with lanes, several looks share them.
	mostQueues = 48
	// heardFor is how long after the last look an archive is looked through from there, and not from now on.
	heardFor = 24 * time.Hour
)

// sweep takes over marks, and looks at archives, until the Teller is closed.
func (t *Teller) sweep() {
	tick := time.NewTicker(sweepEach)
	defer tick.Stop()
	var seen map[string]archive
	if t.Archived != nil {
		seen = map[string]archive{}
	}
	parts := slices.Collect(slices.Chunk(t.queues, mostQueues))
	if len(parts) == 0 {
		return
	}
	next := make([]time.Time, len(parts))
	for look := 0; ; look++ {
		part := look % len(parts)
		if now := time.Now(); t.Archived != nil && !now.Before(next[part]) {
			next[part] = now.Add(archiveEach)
			t.lookAtArchives(parts[part], seen)
		}
		t.takeOver(parts[part])
		select {
		case <-t.stop:
			return
		case <-t.hints:
		case <-tick.C:
		}
	}
}

// takeOver has marks of some queues told that nobody tells.
func (t *Teller) takeOver(queues []string) {
	var keys []string
	for _, queue := range queues {
		if t.Archived != nil {
			keys = append(keys, ArchivedMarks(queue))
		}
		if t.Completed != nil {
			keys = append(keys, CompletedMarks(queue))
		}
	}
	for i, there := range t.exist(keys) {
		for there {
			there = t.claimSome(keys[i])
		}
	}
}

// exist tells which of some keys may exist, by one command each.
func (t *Teller) exist(keys []string) []bool {
	ctx, cancel := context.WithTimeout(t.ctx, callTimeout)
	defer cancel()
	counts := make([]*redis.IntCmd, len(keys))
	_, _ = t.Client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, key := range keys {
			counts[i] = p.Exists(ctx, key)
		}
		return nil
	})
	there := make([]bool, len(keys))
	for i, count := range counts {
		n, err := count.Result()
		there[i] = err != nil || n > 0 // the call that follows meets the error
	}
	return there
}

// claimSome has some marks of a key told. It reports whether there may be more, and room for them.
func (t *Teller) claimSome(key string) bool {
	t.mu.Lock()
	room := batch - len(t.queued)
	t.mu.Unlock()
	if room <= 0 || t.stopped() {
		return false
	}
	ctx, cancel := context.WithTimeout(t.ctx, callTimeout)
	defer cancel()
	began := time.Now()
	due, err := claimScript.Run(ctx, t.Client, []string{key}, room, claimed.Milliseconds()).StringSlice()
	if err != nil {
		t.wrong(ctx, err)
		return false
	}
	for _, text := range due {
		m, err := ParseMark(text)
		if err != nil {
			t.Logger.ErrorContext(ctx, "a mark of the end of a task cannot be read; it is removed", "error", err)
			t.Client.ZRem(ctx, key, text)
			continue
		}
		t.add(claim{text, m, began.Add(claimed)})
	}
	return len(due) == room
}

func (t *Teller) stopped() bool {
	select {
	case <-t.stop:
		return true
	default:
		return false
	}
}

// wrong logs why ends are not looked for, unless Redis is away.
func (t *Teller) wrong(ctx context.Context, err error) {
	if !failing(err) && !t.stopped() {
		t.Logger.WarnContext(ctx, "the ends of tasks could not be looked for; they are told later", "error", err)
	}
}

// archive is what the last look has seen of the archive of a queue.
type archive struct {
	at    time.Time        // of the look; an archive that does not exist is not looked at
	tasks map[string]int64 // when they were archived (s)
}

// lookAtArchives notes the ends of tasks of some queues that other programs have archived.
func (t *Teller) lookAtArchives(queues []string, seen map[string]archive) {
	keys := make([]string, len(queues))
	for i, queue := range queues {
		keys[i] = asynqwire.Archived(queue)
	}
	began := time.Now()
	there := t.exist(keys)
	for i, queue := range queues {
		if t.stopped() {
			return
		}
		if last := seen[queue].at; !there[i] && began.Sub(last) < heardFor/2 { // it is known up to when somebody has looked
			continue
		}
		ctx, cancel := context.WithTimeout(t.ctx, 5*callTimeout)
		found, err := t.lookAtArchive(ctx, queue, seen[queue])
		if err != nil {
			t.wrong(ctx, err)
		} else {
			seen[queue] = found
		}
		cancel()
	}
}

// lookAtArchive notes the ends of tasks of a queue that other programs have archived since the last look of any server.
func (t *Teller) lookAtArchive(ctx context.Context, queue string, seen archive) (archive, error) {
	from, err := t.Client.Get(ctx, HeardKey(queue)).Int64()
	now := time.Now()
	if errors.Is(err, redis.Nil) { // tasks that were archived before anybody heard of them are not told
		return archive{at: now}, t.Client.SetNX(ctx, HeardKey(queue), now.Add(overlap).Unix(), heardFor).Err()
	} else if err != nil {
		return archive{}, err
	}
	// One call, since tasks leave the archive at any moment: asynq keeps 10 000 there at most.
	tasks, err := t.Client.ZRangeByScoreWithScores(ctx, asynqwire.Archived(queue), &redis.ZRangeBy{
		Min: strconv.FormatInt(from-int64(overlap.Seconds()), 10), Max: "+inf",
	}).Result()
	if err != nil {
		return archive{}, err
	}
	found := archive{now, map[string]int64{}}
	var fresh []redis.Z
	for _, z := range tasks {
		id, _ := z.Member.(string)
		if found.tasks[id] = int64(z.Score); seen.tasks[id] != found.tasks[id] {
			fresh = append(fresh, z)
		}
	}
	for some := range slices.Chunk(fresh, batch) {
		if err := t.note(ctx, queue, some); err != nil {
			return archive{}, err
		}
	}
	if now.Unix() <= from {
		return found, t.Client.Expire(ctx, HeardKey(queue), heardFor).Err()
	}
	return found, t.Client.Set(ctx, HeardKey(queue), now.Unix(), heardFor).Err()
}

// note notes the ends of archived tasks that have none.
func (t *Teller) note(ctx context.Context, queue string, tasks []redis.Z) error {
	fields := make([]*redis.SliceCmd, len(tasks))
	if _, err := t.Client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, z := range tasks {
			id, _ := z.Member.(string)
			fields[i] = p.HMGet(ctx, asynqwire.Hash(queue, id), asynqwire.MessageField, asynqwire.ResultField, endedField)
		}
		return nil
	}); err != nil {
		return err
	}
	for i, z := range tasks {
		id, _ := z.Member.(string)
		values := fields[i].Val()
		message, known := values[0].(string)
		result, _ := values[1].(string)
		ended, _ := values[2].(string)
		at := int64(z.Score)
		if told, _ := parseEnded(ended); !known || told >= at {
			continue
		}
		m := Mark{
			End:   t.Found(message, []byte(result), ArchivedByServer(message, at)),
			Queue: queue, ID: id, Run: "archive." + strconv.FormatInt(at, 10), At: time.Unix(at, 0), Message: message,
		}
		err := foundScript.Run(ctx, t.Client, []string{asynqwire.Hash(queue, id), asynqwire.Archived(queue), m.Key()},
			id, at, m.String(), m.archivedAs(at)).Err()
		if err != nil {
			return err
		}
	}
	return nil
}

// ArchivedByServer reports whether a server of asynq has archived a task, and not a person: the server writes when the task
// has failed into its message.
func ArchivedByServer(message string, at int64) bool {
	return asynqwire.ReadMessage(message).LastFailedAt.Unix() == at
}
