package attach

import (
	"fmt"
	"io"
	"log"
	"os"
	"strings"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/internal/line"
)

// exhausted is what asynq v0.26 logs as a warning before it archives a task, followed by the task's ID. It does so for
// every error of a last attempt, and so for each wait of a task that has no retry left.
const exhausted = "Retry exhausted for task id="

// quietLog leaves out the lines of asynq's log that call a task exhausted although it only waits.
type quietLog struct {
	asynq.Logger
	waits func(id string) bool
}

func (l quietLog) Warn(args ...any) {
	if len(args) == 1 {
		text, _ := args[0].(string)
		if id, ok := strings.CutPrefix(text, exhausted); ok && l.waits(id) {
			return
		}
	}
	l.Logger.Warn(args...)
}

// waits reports whether a task with this ID, in one of our queues, is about to be parked.
func (a *Attached) waits(id string) bool {
	engine := (*line.Engine)(a.queue)
	queues := a.queues()
	if len(queues) == 0 {
		queues = map[string]int{"default": 1} // as asynq has it
	}
	for queue := range queues {
		if engine.Waits(line.Task{Queue: queue, ID: id}) {
			return true
		}
	}
	return false
}

// plainLog writes lines like those of asynq's default Logger, which cannot be had from asynq.
type plainLog struct{ *log.Logger }

func newPlainLog(to io.Writer) plainLog {
	return plainLog{log.New(to, fmt.Sprintf("asynq: pid=%d ", os.Getpid()), log.LstdFlags|log.Lmicroseconds|log.LUTC)}
}

func (l plainLog) Debug(args ...any) { l.write("DEBUG", args) }
func (l plainLog) Info(args ...any)  { l.write("INFO", args) }
func (l plainLog) Warn(args ...any)  { l.write("WARN", args) }
func (l plainLog) Error(args ...any) { l.write("ERROR", args) }

// Fatal ends the process, as asynq's own does.
func (l plainLog) Fatal(args ...any) {
	l.write("FATAL", args)
	os.Exit(1)
}

func (l plainLog) write(level string, args []any) {
	l.Print(append([]any{level + ": "}, args...)...)
}
