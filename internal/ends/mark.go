package ends

import (
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/hibiken/asynq"
)

// State is what became of a task.
type State string

// The States.
const (
	Archived  State = "archived"
	Completed State = "completed"
	Deleted   State = "deleted" // without success
)

// Causes of ends that the middleware does not know: by a person or another program, and by a cancellation.
const (
	ByHand    = "by_hand"
	Cancelled = "cancelled"
)

// End is how a task has ended.
type End struct {
	State State `json:"state"`
	// Cause, Detail, By and Why are for whoever hears of the end.
	Cause  string          `json:"cause,omitempty"`
	Detail json.RawMessage `json:"detail,omitempty"`
	By     string          `json:"by,omitempty"`
	Why    string          `json:"why,omitempty"`
}

// Mark notes the end of a task that is to be told.
type Mark struct {
	End
	Queue string `json:"queue"`
	ID    string `json:"id"`
	// Run tells the mark from those of other ends of the task.
	Run string `json:"run"`
	// At is when the task has ended, by the clock of the process that has ended it.
	At time.Time `json:"at"`
	// Tries is how often its callback has failed.
	Tries int `json:"tries,omitempty"`
	// Message is asynq's.
	Message string `json:"-"`
}

// String returns the mark as it is stored. It ends with the message.
func (m Mark) String() string {
	head, _ := json.Marshal(m) // texts, numbers and times; Detail is JSON
	return string(head) + "\n" + m.Message
}

var errMark = errors.New("ends: the mark cannot be read")

// ParseMark reads a mark.
func ParseMark(text string) (m Mark, err error) {
	head, message, ok := strings.Cut(text, "\n")
	if !ok || json.Unmarshal([]byte(head), &m) != nil {
		return m, errMark
	}
	m.Message = message
	return m, nil
}

// Key returns the key of the marks to which m belongs.
func (m Mark) Key() string {
	if m.State == Completed {
		return CompletedMarks(m.Queue)
	}
	return ArchivedMarks(m.Queue)
}

// Info returns the task as asynq's Inspector does. The state of a task that was deleted is active.
func (m Mark) Info(result []byte) *asynq.TaskInfo {
	state := map[State]asynq.TaskState{
		Archived: asynq.TaskStateArchived, Completed: asynq.TaskStateCompleted, Deleted: asynq.TaskStateActive,
	}[m.State]
	info := InfoOf(m.Message, state, result)
	info.ID, info.Queue = m.ID, m.Queue
	if m.State == Completed && info.CompletedAt.IsZero() {
		info.CompletedAt = m.At
	}
	return info
}

// archivedAs returns what the hash of a task says of its end that was archived at a time (s).
func (e End) archivedAs(at int64) string { return strconv.FormatInt(at, 10) + " " + e.Cause }

// parseEnded reads what archivedAs has returned; zero if that is nothing.
func parseEnded(text string) (at int64, cause string) {
	when, cause, _ := strings.Cut(text, " ")
	at, err := strconv.ParseInt(when, 10, 64)
	if err != nil {
		return 0, ""
	}
	return at, cause
}
