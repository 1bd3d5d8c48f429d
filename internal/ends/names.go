package ends

import (
	_ "embed"
	"time"

	"github.com/railtoken/railtoken/internal/asynqwire"
)

// ArchivedMarks returns the key of the marks of a queue's tasks that were archived, or deleted without success.
func ArchivedMarks(queue string) string { return "railtoken:ends:{" + queue + "}" + ":archived" }

// CompletedMarks returns the key of the marks of a queue's tasks that have completed.
func CompletedMarks(queue string) string { return "railtoken:ends:{" + queue + "}" + ":completed" }

// HeardKey returns the key that exists while a server hears of archived tasks of a queue. Its value is the time up to which
// the archive was looked through (s).
func HeardKey(queue string) string { return "railtoken:ends:{" + queue + "}" + ":heard" }

// AwaitedKey returns the flag of a queue of whose tasks somebody waits for one. Its name begins as asynq's own do, because
// every acknowledgement reads it, and a Redis user of asynq's may have no rights to others.
func AwaitedKey(queue string) string { return asynqwire.Prefix(queue) + "awaited" }

// Fields of a task's hash.
const (
	awaitedField = "railtoken:awaited" // the channels of those who wait for its end
	endedField   = "railtoken:ended"   // when it was archived (s), and the cause, if somebody was to hear of it
)

const (
	// Unclaimed is how long after an end another process may tell it.
	Unclaimed = 4 * time.Second
	// claimed is how long a mark is kept by the process that tells it, which renews that.
	claimed = 4 * time.Second
	// margin is how long before the end of that no callback begins.
	margin = time.Second
	// sweepEach is the time between two looks for marks, and archiveEach between two looks at the archives.
	sweepEach   = time.Second
	archiveEach = 5 * time.Second
)

// Functions are those of the scripts that end a task.
//
//go:embed lua/ends.lua
var Functions string
