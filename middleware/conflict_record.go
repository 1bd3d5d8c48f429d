package middleware

import (
	"encoding/json"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/locking"
)

// record is a [ConflictError] as it is stored in the result of a task that it has ended.
type record struct {
	Queue        string           `json:"queue"`
	ID           string           `json:"id"`
	Type         string           `json:"type"`
	Key          string           `json:"key"`
	KeyBytes     []byte           `json:"key_bytes,omitempty"` // a key that is not valid UTF-8
	Outcome      string           `json:"outcome"`
	Limit        delayqueue.Limit `json:"limit,omitempty"`
	Conflicts    int              `json:"conflicts"`
	WaitedMS     int64            `json:"waited_ms"`
	RetryAfterMS int64            `json:"retry_after_ms"`
	Holder       string           `json:"holder,omitempty"`
	HeldSince    *time.Time       `json:"held_since,omitempty"`
	HeldMS       int64            `json:"held_ms,omitempty"`
	HolderFence  int64            `json:"holder_fence,omitempty"`
}

// result returns the error as JSON, for the task's result.
func (e *ConflictError) result() []byte {
	rec := record{
		Queue: e.Task.Queue, ID: e.Task.ID, Type: e.Type, Key: e.Key, Outcome: e.Outcome.String(), Limit: e.Limit,
		Conflicts: e.Conflicts, WaitedMS: e.Waited.Milliseconds(), RetryAfterMS: e.RetryAfter.Milliseconds(),
		Holder: e.Holder.Label, HeldMS: e.Held.Milliseconds(), HolderFence: e.Holder.Fence,
	}
	if !utf8.ValidString(e.Key) {
		rec.KeyBytes = []byte(e.Key)
	}
	if !e.Holder.Since.IsZero() {
		rec.HeldSince = &e.Holder.Since
	}
	b, _ := json.Marshal(rec) // strings, numbers and a time never fail
	return b
}

// ParseConflict reads from a task's result (asynq.TaskInfo.Result) why the task was archived, or completed without a run: the
// key, its holder, the limit that was reached, and how often and for how long the task was refused. It returns an error for any
// other result, such as that of a task that was archived for another reason. The example of [ReplayConflicts] shows where
// to find results.
func ParseConflict(result []byte) (*ConflictError, error) {
	var rec record
	err := json.Unmarshal(result, &rec)
	outcome, known := map[string]Outcome{Archive.String(): Archive, Complete.String(): Complete}[rec.Outcome]
	if err != nil || !known || rec.Key == "" {
		return nil, fmt.Errorf("middleware: the result of the task has no conflict (%d bytes)", len(result))
	}
	retryAfter := time.Duration(rec.RetryAfterMS) * time.Millisecond
	e := &ConflictError{
		Task: delayqueue.Task{Queue: rec.Queue, ID: rec.ID}, Type: rec.Type, Key: rec.Key, Outcome: outcome,
		Limit: rec.Limit, Conflicts: rec.Conflicts, Waited: time.Duration(rec.WaitedMS) * time.Millisecond,
		RetryAfter: retryAfter, Held: time.Duration(rec.HeldMS) * time.Millisecond,
		Holder: locking.Holder{Label: rec.Holder, Fence: rec.HolderFence, Remaining: retryAfter},
	}
	if len(rec.KeyBytes) > 0 {
		e.Key = string(rec.KeyBytes)
	}
	if rec.HeldSince != nil {
		e.Holder.Since = *rec.HeldSince
	}
	return e, nil
}
