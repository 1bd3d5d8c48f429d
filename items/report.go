package items

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/hibiken/asynq"
)

// State is the state of an item.
type State string

// The states of an item.
const (
	Pending State = "pending" // it has not run yet, or has not finished
	Done    State = "done"    // it has run without an error, and never runs again
	Failed  State = "failed"  // its last run returned an error
	Skipped State = "skipped" // its run returned an error made by [Skip], and it does not run again
	Refused State = "refused" // another holder had one of its keys
)

// Result is the state of an item that is not done.
type Result struct {
	Index int   `json:"index"` // in the result of Split
	State State `json:"state"`
	// Tries is how often the item has ended with an error since it was last replayed.
	Tries int `json:"tries,omitempty"`
	// Err is the text of the last error of a failed or skipped item, cut off after 200 bytes.
	Err string `json:"error,omitempty"`

	// Key is the key that a refused item did not get, and Holder the label of its holder, empty when that is another
	// program. RetryAfter is how long the holder's lease lasts without a renewal; negative if it has no end.
	Key        string        `json:"key,omitempty"`
	Holder     string        `json:"holder,omitempty"`
	RetryAfter time.Duration `json:"-"`
}

// resultJSON is a Result in JSON, with durations in milliseconds.
type resultJSON struct {
	*plainResult
	RetryAfterMS int64 `json:"retry_after_ms,omitempty"`
}

type plainResult Result

// MarshalJSON writes RetryAfter as retry_after_ms.
func (r Result) MarshalJSON() ([]byte, error) {
	return json.Marshal(resultJSON{(*plainResult)(&r), r.RetryAfter.Milliseconds()})
}

// UnmarshalJSON reads what MarshalJSON has written.
func (r *Result) UnmarshalJSON(data []byte) error {
	read := resultJSON{plainResult: (*plainResult)(r)}
	if err := json.Unmarshal(data, &read); err != nil {
		return err
	}
	r.RetryAfter = time.Duration(read.RetryAfterMS) * time.Millisecond
	return nil
}

// Report is the state of a task's items so far.
type Report struct {
	Total   int `json:"total"`
	Done    int `json:"done"`
	Failed  int `json:"failed,omitempty"`
	Skipped int `json:"skipped,omitempty"`
	Refused int `json:"refused,omitempty"`
	Pending int `json:"pending,omitempty"`
	// Items contains the failed, skipped and refused items in the order of their indexes.
	Items []Result `json:"items,omitempty"`
}

// Err returns nil when every item is done or skipped, and otherwise an [Error] that archives the task.
func (r Report) Err() error {
	if r.Done+r.Skipped == r.Total {
		return nil
	}
	return &Error{Report: r}
}

// ParseReport reads the result of a task (asynq.TaskInfo.Result) that has ended with items that are not done. Any
// other result is an error.
func ParseReport(result []byte) (Report, error) {
	var r Report
	if err := json.Unmarshal(result, &r); err != nil || r.Total == 0 {
		return Report{}, fmt.Errorf("items: the result of the task is not a report (%d bytes)", len(result))
	}
	return r, nil
}

// Error reports that a run of a task has ended with items that are neither done nor skipped. Unless Retried is set it
// matches asynq.SkipRetry, so that the task is archived; [Replay] then runs these items again.
type Error struct {
	Report Report
	// Retried reports that failed items have tries left: asynq counts a failure and retries the task for them.
	Retried bool
}

// Error names the number of items in each state, and the first item that failed or was refused, with the reason.
func (e *Error) Error() string {
	var b strings.Builder
	r := e.Report
	fmt.Fprintf(&b, "items: %d of %d done", r.Done, r.Total)
	for _, count := range []struct {
		n     int
		state State
	}{{r.Skipped, Skipped}, {r.Failed, Failed}, {r.Refused, Refused}, {r.Pending, Pending}} {
		if count.n > 0 {
			fmt.Fprintf(&b, ", %d %s", count.n, count.state)
		}
	}
	for _, item := range r.Items {
		switch item.State {
		case Failed:
			fmt.Fprintf(&b, "; item %d: %s", item.Index, item.Err)
		case Refused:
			holder := item.Holder
			if holder == "" {
				holder = "another program"
			}
			fmt.Fprintf(&b, "; item %d: key %q is held by %s", item.Index, item.Key, holder)
		default:
			continue
		}
		break
	}
	return b.String()
}

// Unwrap returns asynq.SkipRetry, or nil if Retried is set.
func (e *Error) Unwrap() error {
	if e.Retried {
		return nil
	}
	return asynq.SkipRetry
}

// ErrSplit reports that a task cannot be divided into items: there are none or too many, or they are no longer those
// that the task had when it first ran. The task is archived.
var ErrSplit = errors.New("items: no usable items")
