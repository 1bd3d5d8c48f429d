package items

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/line"
)

var (
	//go:embed lua/load.lua
	loadSource string
	//go:embed lua/save.lua
	saveSource string
	//go:embed lua/forget.lua
	forgetSource string

	loadScript   = redis.NewScript(loadSource)
	saveScript   = redis.NewScript(saveSource)
	forgetScript = redis.NewScript(forgetSource)
)

// record is what is saved about an item that has run or was refused, and is not done.
type record struct {
	Result
	Attempt int   `json:"attempt"`         // the retry count of the task at that time
	Final   bool  `json:"final,omitempty"` // it is not tried again
	Due     int64 `json:"due,omitempty"`   // ms since 1970 before which it is not tried again
}

// recordJSON is a record in JSON. Without it, record would use the methods of Result and lose the other fields.
type recordJSON struct {
	resultJSON
	Attempt int   `json:"attempt"`
	Final   bool  `json:"final,omitempty"`
	Due     int64 `json:"due,omitempty"`
}

// MarshalJSON writes all fields into one object.
func (r record) MarshalJSON() ([]byte, error) {
	result := resultJSON{(*plainResult)(&r.Result), r.RetryAfter.Milliseconds()}
	return json.Marshal(recordJSON{result, r.Attempt, r.Final, r.Due})
}

// UnmarshalJSON reads what MarshalJSON has written.
func (r *record) UnmarshalJSON(data []byte) error {
	read := recordJSON{resultJSON: resultJSON{plainResult: (*plainResult)(&r.Result)}}
	if err := json.Unmarshal(data, &read); err != nil {
		return err
	}
	r.RetryAfter = time.Duration(read.RetryAfterMS) * time.Millisecond
	r.Attempt, r.Final, r.Due = read.Attempt, read.Final, read.Due
	return nil
}

// progress is what has become of the items of a task.
type progress struct {
	total int
	done  []bool
	noted map[int]record
}

// report counts the items.
func (p progress) report() Report {
	r := Report{Total: p.total}
	for _, done := range p.done {
		if done {
			r.Done++
		}
	}
	for _, i := range slices.Sorted(maps.Keys(p.noted)) {
		result := p.noted[i].Result
		switch result.State {
		case Failed:
			r.Failed++
		case Skipped:
			r.Skipped++
		case Refused:
			r.Refused++
		default:
			continue
		}
		r.Items = append(r.Items, result)
	}
	r.Pending = r.Total - r.Done - r.Failed - r.Skipped - r.Refused
	return r
}

// store keeps the progress of a task in the task's hash. Results are unsaved until save has succeeded.
type store struct {
	progress
	client  redis.UniversalClient
	task    line.Task
	head    string
	unsaved map[int]bool
	since   time.Time // when the first of these was noted
}

func newStore(client redis.UniversalClient, t line.Task, keys [][]string) *store {
	return &store{
		client: client, task: t, head: headOf(keys), unsaved: map[int]bool{},
		progress: progress{total: len(keys), done: make([]bool, len(keys)), noted: map[int]record{}},
	}
}

// headOf returns what identifies the items of a task: their number and a hash of their keys.
func headOf(keys [][]string) string {
	hash := sha256.New()
	var size [8]byte
	for _, own := range keys {
		for _, key := range own {
			_, _ = hash.Write(binary.BigEndian.AppendUint64(size[:0], uint64(len(key))))
			_, _ = hash.Write([]byte(key))
		}
		_, _ = hash.Write([]byte{0xff})
	}
	return strconv.Itoa(len(keys)) + ":" + hex.EncodeToString(hash.Sum(nil)[:8]) + ":"
}

// load reads the progress. The error matches ErrSplit if the progress is that of other items.
func (s *store) load(ctx context.Context) error {
	saved, head, err := load(ctx, s.client, s.task)
	if err != nil || head == "" {
		return err
	}
	if head != s.head {
		return s.changed(head)
	}
	s.progress = saved
	return nil
}

// changed returns the error for a task whose items are not those of its first run.
func (s *store) changed(head string) error {
	was, _, _ := strings.Cut(head, ":")
	return fmt.Errorf("%w: Split returned %d of them with keys of the hash %s, and when the task first ran %s with %s: "+
		"deploy the code that divided it that way, and replay it: %w",
		ErrSplit, s.total, hashIn(s.head), was, hashIn(head), asynq.SkipRetry)
}

func hashIn(head string) string {
	_, hash, _ := strings.Cut(head, ":")
	return strings.TrimSuffix(hash, ":")
}

var (
	errNoTask  = errors.New("items: asynq knows no such task")
	errUnclear = errors.New("items: the progress of the task cannot be read")
)

// isLasting reports whether a call that failed with err would fail again.
func isLasting(err error) bool {
	return errors.Is(err, ErrSplit) || errors.Is(err, errNoTask) || errors.Is(err, errUnclear)
}

// load reads the progress of a task. The head is empty when there is none. The error is errNoTask when the task is
// gone.
func load(ctx context.Context, client redis.UniversalClient, t line.Task) (p progress, head string, err error) {
	reply, err := loadScript.Run(ctx, client, []string{t.Hash()}).StringSlice()
	if err != nil {
		return progress{}, "", fmt.Errorf("items: load the progress of task %s: %w", t, err)
	}
	if len(reply) < 2 {
		return progress{}, "", errNoTask
	}
	if reply[1] == "" {
		return progress{}, "", nil
	}
	broken := fmt.Errorf("%w: %.80q", errUnclear, reply[1])
	parts := strings.SplitN(reply[1], ":", 3)
	if len(parts) != 3 {
		return progress{}, "", broken
	}
	total, err := strconv.Atoi(parts[0])
	if bits := parts[2]; err != nil || len(bits) != (total+7)/8 {
		return progress{}, "", broken
	}
	p = progress{total: total, done: make([]bool, total), noted: map[int]record{}}
	for i := range p.done {
		p.done[i] = parts[2][i/8]>>(i%8)&1 == 1
	}
	for _, text := range reply[2:] {
		var r record
		if err := json.Unmarshal([]byte(text), &r); err != nil || r.Index < 0 || r.Index >= total {
			return progress{}, "", broken
		}
		p.noted[r.Index] = r
	}
	return p, parts[0] + ":" + parts[1] + ":", nil
}

// setDone notes that an item is done.
func (s *store) setDone(i int) {
	s.done[i] = true
	delete(s.noted, i)
	s.touch(i)
}

// note notes a result of an item that is not done.
func (s *store) note(r record) {
	s.noted[r.Index] = r
	s.touch(r.Index)
}

func (s *store) touch(i int) {
	if len(s.unsaved) == 0 {
		s.since = time.Now()
	}
	s.unsaved[i] = true
}

// save writes all unsaved results in one call to Redis.
func (s *store) save(ctx context.Context) error {
	if len(s.unsaved) == 0 {
		return nil
	}
	var done, noted []any
	for i := range s.unsaved {
		if s.done[i] {
			done = append(done, i)
			continue
		}
		text, err := json.Marshal(s.noted[i])
		if err != nil {
			return fmt.Errorf("items: save the result of item %d: %w", i, err)
		}
		noted = append(noted, i, text)
	}
	args := append([]any{s.head, s.total, len(done)}, done...)
	reply, err := saveScript.Run(ctx, s.client, []string{s.task.Hash()}, append(args, noted...)...).Text()
	switch {
	case err != nil:
		return fmt.Errorf("items: save the progress of task %s: %w", s.task, err)
	case reply == "gone":
		return errNoTask
	case reply != "saved":
		return s.changed(reply)
	}
	clear(s.unsaved)
	return nil
}
