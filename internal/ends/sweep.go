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
	// heardFor is how long after the last look an archive is looked through from there, and not from now on.
	heardFor = 24 * time.Hour
)

// sweep takes over marks, and looks at archives, until the Teller is closed.
func (t *Teller) sweep() {
	tick := time.NewTicker(sweepEach)
	defer tick.Stop()
	var seen map[string]archives
	if t.Archived != nil {
		seen = map[string]archives{}
	}
	var next time.Time
	for {
		if now := time.Now(); t.Archived != nil && !now.Before(next) {
			next = now.Add(archiveEach)
			t.lookAtArchives(seen)
		}
		t.takeOver()
		select {
		case <-t.stop:
			return
		case <-t.hints:
		case <-tick.C:
		}
	}
}

// takeOver has marks told that nobody tells.
func (t *Teller) takeOver() {
	for _, queue := range t.queues {
		for _, key := range []string{ArchivedMarks(queue), CompletedMarks(queue)} {
			if key == ArchivedMarks(queue) && t.Archived == nil || key == CompletedMarks(queue) && t.Completed == nil {
				continue
			}
			for t.claimSome(key) {
			}
		}
	}
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

// archives are the archived tasks of a queue that the last look has seen, with when they were archived (s).
type archives map[string]int64

// lookAtArchives notes the ends of tasks that other programs have archived.
func (t *Teller) lookAtArchives(seen map[string]archives) {
	for _, queue := range t.queues {
		if t.stopped() {
			return
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
func (t *Teller) lookAtArchive(ctx context.Context, queue string, seen archives) (archives, error) {
	from, err := t.Client.Get(ctx, HeardKey(queue)).Int64()
	now := time.Now()
	if errors.Is(err, redis.Nil) { // tasks that were archived before anybody heard of them are not told
		return nil, t.Client.SetNX(ctx, HeardKey(queue), now.Add(overlap).Unix(), heardFor).Err()
	} else if err != nil {
		return nil, err
	}
	// One call, since tasks leave the archive at any moment: asynq keeps 10 000 there at most.
	tasks, err := t.Client.ZRangeByScoreWithScores(ctx, asynqwire.Archived(queue), &redis.ZRangeBy{
		Min: strconv.FormatInt(from-int64(overlap.Seconds()), 10), Max: "+inf",
	}).Result()
	if err != nil {
		return nil, err
	}
	found := archives{}
	var fresh []redis.Z
	for _, z := range tasks {
		id, _ := z.Member.(string)
		if found[id] = int64(z.Score); seen[id] != found[id] {
			fresh = append(fresh, z)
		}
	}
	for some := range slices.Chunk(fresh, batch) {
		if err := t.note(ctx, queue, some); err != nil {
			return nil, err
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
