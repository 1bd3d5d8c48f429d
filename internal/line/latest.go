package line

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/railtoken/railtoken/internal/asynqwire"
	"github.com/railtoken/railtoken/internal/broker"
)

var (
	//go:embed lua/latest.lua
	latestSource string

	latestScripts sync.Map // by what comes before latest.lua

	//go:embed lua/latest_run.lua
	latestRunSource string
	latestRunScript = redis.NewScript(latestRunSource)
)

const (
	// LatestHeader is the header of a task of which only the latest payload is to run: the name of its record in Redis.
	LatestHeader = "railtoken-latest"
	latestPrefix = "railtoken:latest:{"
	newestField  = "newest" // of a record
	// latestKept is how much longer than Most a record is kept. A task that is older may run after a newer one.
	latestKept = 48 * time.Hour
	// callSize is the length of the name of a call.
	callSize = 13
	// latestTries is how often a call on a Cluster is repeated because another one was faster.
	latestTries = 20
)

// Errors of [Engine.EnqueueLatest]. Nothing was enqueued.
var (
	// ErrNotLatest reports options that give a task an identity or a time of its own.
	ErrNotLatest = errors.New("attach: only the latest payload of a task is to run: leave out asynq.Unique, TaskID, Group, " +
		"ProcessIn and ProcessAt (Quiet says when it runs), or leave out Latest")
	errOvertaken = errors.New("attach: others enqueue for the same keys so often that this call came too late each time: try again")
)

// Latest says which tasks a task replaces, and when it is due: Quiet after the last one, at the latest Most after the first one. At
// once, if Quiet is zero.
type Latest struct {
	Record      string // see RecordOf
	Quiet, Most time.Duration
}

// Placed says where the payload of an enqueued task is.
type Placed struct {
	Task     Task
	Replaced bool // it has taken the place of another payload
	state    asynq.TaskState
	due      time.Time // zero for now
}

// RecordOf returns the name of the record of the tasks of a group with these keys, which are sorted.
func RecordOf(group string, keys []string) string {
	sum := sha256.Sum256([]byte(strconv.Quote(group) + " " + Names{}.encoded(keys)))
	return hex.EncodeToString(sum[:16])
}

func latestKey(queue, record string) string { return latestPrefix + queue + "}:" + record }

// SupersededResult begins the result of a task that completes because a later payload has begun to run.
const SupersededResult = "railtoken: superseded by task "

// latestHeader returns what the header of a payload says: its record, its number and its task, whose ID has the length idSize. The
// script puts in the number.
func latestHeader(record, id string) string {
	return record + " " + strings.Repeat("0", numberSize) + " " + id
}

// The lengths of an ID that asynq makes and of the number of a payload.
const idSize, numberSize = 36, 16

// readLatest returns the record and the number of a payload of a task with an ID, from its header. ok is false if the header is
// missing, or that of another task, which a handler has passed on.
func readLatest(header, id string) (record, number string, ok bool) {
	of, ours := strings.CutSuffix(header, " "+id)
	at := strings.LastIndexByte(of, ' ')
	if !ours || at < 0 || !strings.HasPrefix(of, latestPrefix) {
		return "", "", false
	}
	return of[:at], of[at+1:], true
}

// BeginLatest notes that the run begins with its payload, under its keys, and returns the task that has begun before with a later one,
// or the zero Task. header is that of the payload; if it is another task's, which a handler has passed on, it says nothing.
func (r *Run) BeginLatest(ctx context.Context, header string) (by Task, err error) {
	if r == nil {
		return Task{}, nil
	}
	record, number, ok := readLatest(header, r.task.ID)
	if !ok {
		return Task{}, nil
	}
	entry, err := latestRunScript.Run(ctx, r.queue.client, []string{record}, r.task.Entry(), number, latestKept.Milliseconds()).Text()
	if entry != "" {
		by = taskOf(entry)
	}
	return by, err
}

// EnqueueLatest enqueues a task, or gives its payload to one of the same record that waits. A call whose reply is lost is sent
// again, and counts as one call that has lasted until then. It makes one call to Redis, and on a Cluster two.
func (e *Engine) EnqueueLatest(ctx context.Context, task *asynq.Task, keys []string, l Latest, opts ...asynq.Option) (*asynq.TaskInfo, Placed, error) {
	a := &enqueuing{EnqueueOptions: EnqueueOptions{Keys: keys}, call: rand.Text()[:callSize], latest: &l}
	info, err := e.send(ctx, a, task, opts)
	switch {
	case a.err != nil:
		return nil, Placed{}, a.err
	case err != nil:
		return nil, Placed{}, err
	}
	info.ID, info.State = a.placed.Task.ID, a.placed.state
	if !a.placed.due.IsZero() {
		info.NextProcessAt = a.placed.due
	}
	return info, a.placed, nil
}

// answerLatest runs latest.lua in place of asynq's script.
func (e *Engine) answerLatest(ctx context.Context, a *enqueuing, sent broker.Enqueuing) *redis.Cmd {
	a.err = nil
	message, at := []byte(nil), 0
	if len(sent.Args) > 0 {
		if message, _ = sent.Args[0].([]byte); message != nil {
			at = idIn(message, sent.ID)
		}
	}
	switch {
	case sent.Script == "":
		a.err = ErrForeign
	case sent.Script != "enqueue" || at == 0 || !isRandom(sent.ID):
		a.err = ErrNotLatest
	}
	if a.err != nil {
		return failedCmd(ctx, a.err)
	}
	record := latestKey(sent.Queue, a.latest.Record)
	args := append([]any{withHeader(message, LatestHeader, latestHeader(record, sent.ID))}, sent.Args[1:]...)
	args = append(args, a.call, e.names.encoded(a.Keys), sent.ID, at, a.latest.Quiet.Milliseconds(), a.latest.Most.Milliseconds(),
		(a.latest.Most + latestKept).Milliseconds(), deadlineOf(string(message)))
	head := fmt.Sprintf("local K, A = %d, %d\n%s", len(sent.Keys), len(sent.Args), sent.Function())
	script, ok := latestScripts.Load(head)
	if !ok {
		script, _ = latestScripts.LoadOrStore(head, redis.NewScript(composed(head+latestSource)))
	}
	//nolint:errcheck,forcetypeassert // nothing else is stored
	cmd, err := e.place(ctx, a, script.(*redis.Script), sent, record, args)
	if err != nil {
		a.err = err
		return failedCmd(ctx, err)
	}
	return cmd
}

// place makes the call, on a Cluster until the record names the task that the call tells of.
func (e *Engine) place(
	ctx context.Context, a *enqueuing, script *redis.Script, sent broker.Enqueuing, record string, args []any,
) (*redis.Cmd, error) {
	t := Task{Queue: sent.Queue, ID: sent.ID}
	keys := slices.Concat(sent.Keys, []string{
		t.Hash(), asynqwire.Pending(t.Queue), asynqwire.Retry(t.Queue), asynqwire.Scheduled(t.Queue), record,
	})
	if e.spread {
		other, err := e.client.HGet(ctx, record, newestField).Result()
		switch {
		case errors.Is(err, redis.Nil):
			keys = append(keys, record)
		case err != nil:
			return nil, err
		default:
			keys = append(keys, Task{Queue: t.Queue, ID: other}.Hash())
		}
	}
	for range latestTries {
		cmd := script.Run(ctx, e.client, keys, args...)
		if _, own := cmd.Val().([]any); !own { // but an error, or what asynq's script has returned
			return cmd, nil
		}
		r := replyOf(cmd)
		again, id := r.number() == 2, r.text()
		if again {
			keys[len(keys)-1] = Task{Queue: t.Queue, ID: id}.Hash()
			continue
		}
		a.placed = Placed{Task: Task{Queue: t.Queue, ID: id}, state: asynq.TaskStatePending}
		switch r.text() {
		case "scheduled":
			a.placed.state = asynq.TaskStateScheduled
		case "retry":
			a.placed.state = asynq.TaskStateRetry
		}
		if s, _ := strconv.ParseFloat(r.text(), 64); s > 0 {
			a.placed.due = time.Unix(int64(s), 0)
		}
		if a.placed.Replaced = r.yes(); r.err != nil {
			return nil, r.err
		}
		done := redis.NewCmd(ctx)
		done.SetVal(int64(1))
		return done, nil
	}
	return nil, errOvertaken
}

// isRandom reports whether an ID may be one that asynq has made.
func isRandom(id string) bool {
	return len(id) == idSize && strings.Count(id, "-") == 4 && strings.Trim(id, "0123456789abcdef-") == ""
}

// idIn returns where asynq's message of a task has its ID, counted from 1; 0 if it has another one.
func idIn(message []byte, id string) (at int) {
	read := 0
	eachField(string(message), func(field protowire.Number, wire protowire.Type, value []byte) {
		read += protowire.SizeTag(field) + len(value)
		if text, _ := protowire.ConsumeBytes(value); field == idField && wire == protowire.BytesType && string(text) == id {
			at = read - idSize + 1
		}
	})
	return at
}

// withHeader returns asynq's message of a task with one header more.
func withHeader(message []byte, name, value string) []byte {
	entry := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), name)
	entry = protowire.AppendString(protowire.AppendTag(entry, 2, protowire.BytesType), value)
	return protowire.AppendBytes(protowire.AppendTag(message[:len(message):len(message)], headersField, protowire.BytesType), entry)
}
