package line

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/railtoken/railtoken/internal/rediswire"
)

// WaitField is the field of asynq's hash of a task that has the record of its wait.
const WaitField = "railtoken:wait"

// Wait is the record of a task's wait: see record.lua. The zero value is that of a task that has none.
type Wait struct {
	Conflict
	// Attempt is the retry count that the conflicts are for.
	Attempt int
	// Deadline is that of the task (s), 0 for none.
	Deadline int64
	// Place is its score among the waiters, and RetryAfter its timer if it were next.
	Place      int64
	RetryAfter time.Duration
	// Own says that the key is none of a lock, and freed that the task has found the key free when it was to wait for it.
	Own, freed bool
	// Keys are those that the task waits for. The first is the one that it was woken for, if it was.
	Keys []string
}

// ParseWait reads the field of a record. Of anything else it returns the zero value.
func ParseWait(field any) (w Wait) {
	text, _ := field.(string)
	words := strings.Split(text, " ")
	if len(words) < 7 {
		return Wait{}
	}
	var numbers [7]int64
	for i := range numbers {
		n, err := strconv.ParseInt(words[i], 10, 64)
		if err != nil {
			return Wait{}
		}
		numbers[i] = n
	}
	w.Attempt, w.Deadline, w.Place, w.Count = int(numbers[0]), numbers[1], numbers[4]+numbers[2], int(numbers[3])
	if numbers[4] > 0 {
		w.First = time.UnixMicro(numbers[4])
	}
	w.RetryAfter, w.Own, w.freed = time.Duration(numbers[5])*time.Millisecond, numbers[6]&1 != 0, numbers[6]&2 != 0
	for _, word := range words[7:] {
		if key, ok := rediswire.Decode(word); ok {
			w.Keys = append(w.Keys, key)
		}
	}
	return w
}

// Key returns the key whose waiters the task is among, or was woken from; "" and false if there is none.
func (w Wait) Key() (string, bool) {
	if len(w.Keys) == 0 {
		return "", false
	}
	return w.Keys[0], true
}

// String returns the record as the scripts write it.
func (w Wait) String() string {
	first := int64(0)
	if !w.First.IsZero() {
		first = w.First.UnixMicro()
	}
	return strings.TrimSuffix(fmt.Sprint(w.Attempt, w.Deadline, w.Place-first, w.Count, first, w.RetryAfter.Milliseconds(),
		number(w.Own)+2*number(w.freed))+" "+Names{}.encoded(w.Keys), " ")
}
