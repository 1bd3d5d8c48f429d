package linetest

import "github.com/railtoken/railtoken/internal/line"

// Record returns the fields of the record of a task's wait.
func Record(w line.Wait) []any {
	waiters := ""
	if key, ok := w.Key(); ok {
		waiters = line.Names{}.Waiters(key)
	}
	return []any{line.WaitField, w.String(), "railtoken:waiters", waiters}
}
