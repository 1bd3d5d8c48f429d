package attach

import (
	"fmt"
	"log/slog"
	"slices"
	"testing"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
)

// written is a Logger of asynq's that keeps what it is given.
type written []string

func (w *written) add(level string, args []any) { *w = append(*w, level+" "+fmt.Sprint(args...)) }
func (w *written) Debug(args ...any)            { w.add("debug", args) }
func (w *written) Info(args ...any)             { w.add("info", args) }
func (w *written) Warn(args ...any)             { w.add("warn", args) }
func (w *written) Error(args ...any)            { w.add("error", args) }
func (w *written) Fatal(args ...any)            { w.add("fatal", args) }

func TestTheLogIsAsynqsAtItsLevel(t *testing.T) {
	t.Parallel()
	for level, want := range map[asynq.LogLevel][]string{
		asynq.DebugLevel:  {"debug railtoken: msg=1", "info railtoken: msg=2", "warn railtoken: msg=3 a=b", "error railtoken: msg=4 g.c=d"},
		asynq.LogLevel(0): {"info railtoken: msg=2", "warn railtoken: msg=3 a=b", "error railtoken: msg=4 g.c=d"},
		asynq.ErrorLevel:  {"error railtoken: msg=4 g.c=d"},
		asynq.FatalLevel:  nil,
	} {
		var got written
		log := loggerOf(asynq.Config{Logger: &got, LogLevel: level})
		log.Debug("1")
		log.Info("2")
		log.With("a", "b").Warn("3")
		log.WithGroup("g").Error("4", "c", "d")
		if !slices.Equal(got, want) {
			t.Errorf("level %v: %q, want %q", level, got, want)
		}
	}
	if loggerOf(asynq.Config{}) != slog.Default() {
		t.Error("without a Logger it is not slog.Default")
	}
}

func TestAProducerLogsToTheDefault(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{}) // it connects to nothing
	defer client.Close()
	p, err := NewProducer(client, ProducerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if p.opts.Logger != slog.Default() {
		t.Error("without a Logger it is not slog.Default")
	}
}
