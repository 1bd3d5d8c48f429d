package lanemove

import (
	"cmp"
	"context"
	"crypto/sha1" //nolint:gosec // Redis has no other; it only tells whether something has changed
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/asynqwire"
	"github.com/railtoken/railtoken/internal/lanes"
	"github.com/railtoken/railtoken/internal/line"
	"github.com/railtoken/railtoken/internal/lockwire"
	"github.com/railtoken/railtoken/internal/pipeline"
)

var (
	//go:embed lua/begin.lua
	beginSource string
	//go:embed lua/copy.lua
	copySource string
	//go:embed lua/take.lua
	takeSource string
	//go:embed lua/rank.lua
	rankSource string
	//go:embed lua/activate.lua
	activateSource string
	//go:embed lua/stand.lua
	standSource string
	//go:embed lua/finish.lua
	finishSource string

	beginScript    = redis.NewScript(beginSource)
	copyScript     = redis.NewScript(copySource)
	takeScript     = redis.NewScript(takeSource)
	rankScript     = redis.NewScript(rankSource)
	activateScript = redis.NewScript(lanes.Functions + activateSource)
	standScript    = redis.NewScript(standSource)
	finishScript   = redis.NewScript(finishSource)
)

// waitersLife is how long a set of waiters is kept to which no task comes, as package line keeps it.
const waitersLife = 48 * time.Hour

// toldFor is how much longer than the timer of the last parked task a holder is told that tasks wait.
const toldFor = 2 * time.Minute

// batch moves tasks of a state, and returns how many of them stay.
func (m *mover) batch(ctx context.Context, state string, ids []string) (stay int, err error) {
	all, err := m.read(ctx, ids)
	if err != nil {
		return 0, err
	}
	going, stay, err := m.prepared(ctx, state, ids, all)
	if err != nil {
		return stay, err
	}
	copied, err := m.copy(ctx, going)
	if err != nil {
		return stay, err
	}
	stay += len(going) - len(copied)
	taken, err := m.take(ctx, copied)
	if err != nil {
		return stay, err
	}
	if err := m.settle(ctx, taken); err != nil {
		return stay, err
	}
	for _, t := range taken {
		m.report.Moved[state]++
		if lane, ok := m.names.In(t.to); ok {
			m.report.Lanes[lane]++
		}
	}
	return stay, nil
}

// resume goes on with tasks that were taken, by this move or an earlier one.
func (m *mover) resume(ctx context.Context) error {
	notes, err := m.client.HGetAll(ctx, Record(m.Queue)).Result()
	if err != nil {
		return err
	}
	var ids []string
	var taken []*task
	for field, text := range notes {
		id, ok := strings.CutPrefix(field, taskPrefix)
		if !ok {
			continue
		}
		n, err := parseNote(text)
		if err != nil {
			return err
		}
		ids, taken = append(ids, id), append(taken, &task{note: n, id: id})
	}
	for first := 0; first < len(ids); first += batchSize {
		last := min(first+batchSize, len(ids))
		all, err := m.read(ctx, ids[first:last])
		if err != nil {
			return err
		}
		for i, f := range all {
			taken[first+i].fields = f
		}
	}
	// The record has no order. Those that are pending since they were enqueued say when that was.
	slices.SortStableFunc(taken, func(a, b *task) int {
		return cmp.Compare(a.fields[asynqwire.PendingSinceField], b.fields[asynqwire.PendingSinceField])
	})
	for some := range slices.Chunk(taken, batchSize) {
		if err := m.resumeSome(ctx, some); err != nil {
			return err
		}
	}
	return nil
}

func (m *mover) resumeSome(ctx context.Context, taken []*task) error {
	var there []*task
	for _, t := range taken {
		switch {
		case len(t.fields) == 0: // it was deleted by hand
			if err := m.client.HDel(ctx, Record(m.Queue), taskPrefix+t.id).Err(); err != nil {
				return err
			}
		case !t.translate(m.names, m.Queue):
			return fmt.Errorf("the message of task %s, which was taken, cannot be read any more", t.from(m.Queue))
		default:
			there = append(there, t)
		}
	}
	if err := m.readLines(ctx, there); err != nil {
		return err
	}
	if _, err := m.copy(ctx, there); err != nil {
		return err
	}
	if err := m.settle(ctx, there); err != nil {
		return err
	}
	m.report.Resumed += len(there)
	return nil
}

// run makes a call for each task for which there is one, and passes on the reply: a text, or the first of several.
func (m *mover) run(ctx context.Context, all []*task, call func(*task) (pipeline.ScriptCall, bool), note func(*task, string, []any)) error {
	var calls []pipeline.ScriptCall
	var asked []*task
	for _, t := range all {
		if c, ok := call(t); ok {
			calls, asked = append(calls, c), append(asked, t)
		}
	}
	if len(calls) == 0 {
		return nil
	}
	var errs []error
	for i, reply := range pipeline.RunScripts(ctx, m.client, calls) {
		value, err := reply.Result()
		text, _ := value.(string)
		more, _ := value.([]any)
		if len(more) > 0 {
			text, _ = more[0].(string)
		}
		switch {
		case err != nil:
			errs = append(errs, err)
		case text == "superseded":
			errs = append(errs, ErrSuperseded)
		case note != nil:
			note(asked[i], text, more)
		}
	}
	return errors.Join(errs...)
}

// copy copies tasks into their lanes, and returns those whose copies are there.
func (m *mover) copy(ctx context.Context, all []*task) (copied []*task, err error) {
	err = m.run(ctx, all, func(t *task) (pipeline.ScriptCall, bool) {
		args := []any{m.number, t.id, m.Queue, copyLife.Milliseconds()}
		for _, name := range t.there.sorted() {
			args = append(args, name, t.there[name])
		}
		return pipeline.ScriptCall{Script: copyScript, Keys: []string{t.in().Hash(), Record(t.to)}, Args: args}, true
	}, func(t *task, outcome string, _ []any) {
		if outcome == "occupied" {
			m.stays[t.id] = IsTaken
			return
		}
		copied = append(copied, t)
	})
	return copied, err
}

// take takes tasks from their sets, and returns those that it has taken.
func (m *mover) take(ctx context.Context, all []*task) (taken []*task, err error) {
	err = m.run(ctx, all, func(t *task) (pipeline.ScriptCall, bool) {
		sum := sha1.New() //nolint:gosec // see above
		args := []any{m.number, t.id, t.state, t.rest(), ""}
		for _, name := range t.fields.sorted() {
			fmt.Fprintf(sum, "%d:%s", len(t.fields[name]), t.fields[name])
			args = append(args, name)
		}
		args[4] = hex.EncodeToString(sum.Sum(nil))
		keys := []string{asynqwire.Hash(m.Queue, t.id), asynqwire.Set(m.Queue, t.state), Record(m.Queue)}
		return pipeline.ScriptCall{Script: takeScript, Keys: keys, Args: args}, true
	}, func(t *task, outcome string, reply []any) {
		if outcome == "taken" {
			t.score, _ = reply[1].(string)
			taken = append(taken, t)
		}
	})
	return taken, err
}

// settle does what is left to do for tasks that were taken and copied.
func (m *mover) settle(ctx context.Context, taken []*task) error {
	if len(taken) == 0 {
		return nil
	}
	for _, step := range []func(context.Context, []*task) error{m.rank, m.enroll, m.activate, m.stand, m.finish, m.forget} {
		if err := step(ctx, taken); err != nil {
			return err
		}
	}
	return nil
}

// rank puts the copies into the sequences of their keys.
func (m *mover) rank(ctx context.Context, taken []*task) error {
	return m.run(ctx, taken, func(t *task) (c pipeline.ScriptCall, ok bool) {
		sequence, _, ok := strings.Cut(t.there[line.SequenceField], " ")
		return pipeline.ScriptCall{
			Script: rankScript, Keys: []string{sequence}, Args: []any{t.from(m.Queue).Entry(), t.in().Entry(), t.position},
		}, ok && t.position != none
	}, nil)
}

// enroll adds the queues of lanes to asynq's list.
func (m *mover) enroll(ctx context.Context, taken []*task) error {
	for _, t := range taken {
		if m.listed[t.to] {
			continue
		}
		if err := m.client.SAdd(ctx, asynqwire.Queues, t.to).Err(); err != nil {
			return err
		}
		m.listed[t.to] = true
	}
	return nil
}

// activate makes the copies the tasks.
func (m *mover) activate(ctx context.Context, taken []*task) error {
	var gone error
	err := m.run(ctx, taken, func(t *task) (pipeline.ScriptCall, bool) {
		keys := []string{t.in().Hash(), asynqwire.Set(t.to, t.state), Record(t.to)}
		if t.unique > 0 {
			keys = append(keys, t.there[asynqwire.UniqueField])
		}
		return pipeline.ScriptCall{
			Script: activateScript, Keys: keys, Args: []any{m.number, t.id, m.Queue, t.state, t.score, t.unique.Milliseconds()},
		}, true
	}, func(t *task, outcome string, _ []any) {
		if outcome == "gone" {
			gone = fmt.Errorf("task %s has no copy in its lane, because that has ended, or because a task of the lane has its ID: move again, "+
				"and if that does not help, delete the other task", t.from(m.Queue))
		}
	})
	return errors.Join(err, gone)
}

// stand puts tasks that wait for their keys among the waiters.
func (m *mover) stand(ctx context.Context, taken []*task) error {
	type stand struct {
		t     *task
		key   string
		place int64
	}
	var stands []stand
	for _, t := range taken {
		if w, ok := standing(t.state, t.there); ok {
			for _, key := range w.Keys {
				stands = append(stands, stand{t, key, w.Place})
			}
		}
	}
	if len(stands) == 0 {
		return nil
	}
	calls := make([]pipeline.ScriptCall, len(stands))
	for i, s := range stands {
		lock, err := lockwire.KeysOf(s.key, lockwire.LockKeyIn(m.names.Lanes))
		if err != nil {
			return err
		}
		owed := line.OwedIn(m.names.Index(m.names.Queue(m.Queue, m.names.Of(s.key))))
		calls[i] = pipeline.ScriptCall{
			Script: standScript, Keys: []string{m.names.Waiters(s.key), owed, lock.Notify},
			Args: []any{
				s.t.from(m.Queue).Entry(), s.t.in().Entry(), strconv.FormatInt(s.place, 10), waitersLife.Milliseconds(),
				(s.t.waits() + toldFor).Milliseconds(),
			},
		}
	}
	var errs []error
	for _, reply := range pipeline.RunScripts(ctx, m.client, calls) {
		errs = append(errs, reply.Err())
	}
	now := float64(time.Now().UnixMicro())
	_, err := m.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, s := range stands {
			index := m.names.Index(s.t.to)
			p.ZAddNX(ctx, index, redis.Z{Score: now, Member: s.t.in().Entry()})
			p.PExpire(ctx, index, waitersLife)
			without := line.Names{}
			p.ZRem(ctx, without.Index(m.Queue), s.t.from(m.Queue).Entry())
			p.ZRem(ctx, without.Waiters(s.key), s.t.from(m.Queue).Entry())
			p.ZRem(ctx, line.OwedIn(without.Index(m.Queue)), without.Waiters(s.key)) // the wake is owed in the lane now
		}
		return nil
	})
	return errors.Join(append(errs, err)...)
}

// finish deletes what is left of the tasks in their old queue.
func (m *mover) finish(ctx context.Context, taken []*task) error {
	return m.run(ctx, taken, func(t *task) (pipeline.ScriptCall, bool) {
		keys := []string{asynqwire.Hash(m.Queue, t.id), Record(m.Queue)}
		if lock := t.fields[asynqwire.UniqueField]; lock != "" {
			keys = append(keys, lock)
		}
		return pipeline.ScriptCall{Script: finishScript, Keys: keys, Args: []any{m.number, t.id}}, true
	}, nil)
}

// forget removes the notes of copies that were activated.
func (m *mover) forget(ctx context.Context, taken []*task) error {
	_, err := m.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, t := range taken {
			p.HDel(ctx, Record(t.to), taskPrefix+t.id)
		}
		return nil
	})
	return err
}
