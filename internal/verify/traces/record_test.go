package traces

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/attach"
	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/middleware"
)

const slots = 2

var into = flag.String("into", "", "`folder` for the recorded runs")

func TestRecord(t *testing.T) {
	server := redistest.Start(t)
	p := &play{
		T: t, names: names{queue, []string{"t0", "t1"}, []string{"k0"}}, redis: server, recorder: record(t, server), strategy: middleware.Requeue{},
		warmed: make(chan struct{}), holds: map[string]chan struct{}{}, count: map[string]int{},
	}
	client := server.Client(t)
	p.inspect = asynq.NewInspectorFromRedisClient(client)
	var err error
	p.producer, err = attach.NewProducer(client, attach.ProducerOptions{Keys: map[string]middleware.KeyFunc{taskType: keysOf}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.producer.Close() })
	p.work(0)
	p.enqueue(job{ID: "warm", Keys: []string{"warm"}, Warm: true})
	close(p.warmed)
	if !p.ended() {
		t.Fatal("the warm tasks do not end")
	}
	if err := p.inspect.PauseQueue(queue); err != nil {
		t.Fatal(err)
	}
	p.enqueue(job{ID: "t0", Keys: []string{"k0"}, Holds: 20 * time.Millisecond}, job{ID: "t1", Keys: []string{"k0"}, Holds: 20 * time.Millisecond})
	if err := p.recorder.mark(markBegin); err != nil {
		t.Fatal(err)
	}
	if err := p.inspect.UnpauseQueue(queue); err != nil {
		t.Fatal(err)
	}
	if !p.ended() {
		t.Error("the tasks do not end")
	}
	lines := p.recorder.end(t)
	if *into != "" {
		var b strings.Builder
		for _, l := range lines {
			fmt.Fprintf(&b, "%v %s %.200q\n", l.at.Format("05.000000"), l.from, l.args)
		}
		_ = os.WriteFile(filepath.Join(*into, "lines"), []byte(b.String()), 0o600)
	}
	events, err := derive(p.names, lines, p.recorder.workerOf)
	var b strings.Builder
	fmt.Fprintln(&b, 0)
	for _, e := range events {
		t.Log(e.String())
		fmt.Fprintln(&b, e.line())
	}
	if err != nil {
		t.Error(err)
	}
	if *into != "" {
		_ = os.WriteFile(filepath.Join(*into, "one.trace"), []byte(b.String()), 0o600)
	}
}
