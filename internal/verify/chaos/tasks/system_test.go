package tasks

import (
	"context"
	"encoding/json"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/internal/verify/chaos"
)

// limit bounds every wait but that for the last task.
const limit = time.Minute

// system is the servers, the network, the workers and the producer of a run.
type system struct {
	*testing.T
	subject  int
	random   *rand.Rand
	clocks   *chaos.Clocks // nil if they cannot step
	tasks    []Task
	sentinel *redistest.Sentinel
	ledger   Ledger
	books    *redistest.Server
	links    []map[string]*chaos.Link // of each worker, and of the producer, by server
	workers  []*exec.Cmd
	inputs   []io.Closer // of the workers: one ends when its own is closed
	started  int
	logs     string
	producer *Producer
	outbox   sync.Mutex
	redis    *redis.Client
	inspect  *asynq.Inspector
	torment
}

func (s *system) start() {
	s.Helper()
	s.logs = *runLogs
	if s.logs == "" {
		s.logs = s.TempDir()
	}
	s.sentinel = redistest.StartSentinel(s)
	if err := s.sentinel.Hurry(s.Context(), gone, failovers); err != nil {
		s.Fatal(err)
	}
	s.books = redistest.Start(s)
	s.ledger = Ledger{s.books.Client(s), Subjects[s.subject].Checks}
	s.redis = s.sentinel.Client(s)
	s.inspect = asynq.NewInspectorFromRedisClient(s.redis)
	for range Workers + 1 {
		links := map[string]*chaos.Link{}
		for _, addr := range s.sentinel.NodeAddrs() {
			l, err := chaos.NewLink(s.Context(), addr)
			if err != nil {
				s.Fatal(err)
			}
			s.Cleanup(l.Close)
			links[addr] = l
		}
		s.links = append(s.links, links)
	}
	var err error
	if s.producer, err = NewProducer(s.reach(Workers), Subjects[s.subject].Locks, s.tasks, s.logOf("producer")); err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { _ = s.producer.Close() })
	s.workers, s.inputs = make([]*exec.Cmd, Workers), make([]io.Closer, Workers)
	for w := range Workers {
		s.startWorker(w)
	}
	s.Cleanup(func() {
		for w := range s.workers {
			s.killWorker(w)
		}
	})
}

// reach is how a process reaches the Redis of the tasks.
func (s *system) reach(process int) Redis {
	r := Redis{Master: s.sentinel.MasterName(), Sentinels: s.sentinel.Addrs(), Links: map[string]string{}}
	for addr, l := range s.links[process] {
		r.Links[addr] = l.Addr()
	}
	return r
}

// logOf returns the file that a process logs to.
func (s *system) logOf(name string) io.Writer {
	s.Helper()
	f, err := os.Create(filepath.Join(s.logs, name+".log"))
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { _ = f.Close() })
	return f
}

func (s *system) startWorker(w int) {
	s.Helper()
	exe, err := os.Executable()
	if err != nil {
		s.Fatal(err)
	}
	s.started++
	name := "worker-" + strconv.Itoa(s.subject) + "-" + strconv.Itoa(s.started)
	settings, err := json.Marshal(Settings{s.subject, name, s.reach(w), s.books.Addr()})
	if err != nil {
		s.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), settingsVariable+"="+string(settings))
	cmd.Stderr = s.logOf(name)
	input, err := cmd.StdinPipe()
	if err != nil {
		s.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		s.Fatal(err)
	}
	s.workers[w], s.inputs[w] = cmd, input
}

func (s *system) killWorker(w int) {
	_ = s.workers[w].Process.Kill()
	_ = s.workers[w].Wait()
}

// stopWorkers ends all workers in order.
func (s *system) stopWorkers() {
	s.Helper()
	for _, input := range s.inputs {
		if err := input.Close(); err != nil {
			s.Error(err)
		}
	}
	for _, w := range s.workers {
		if err := w.Wait(); err != nil {
			s.Errorf("a worker has ended with %v", err)
		}
	}
}

// await waits until reached returns "", and else says what it returned last.
func (s *system) await(what string, patience time.Duration, reached func(context.Context) string) bool {
	s.Helper()
	var last string
	for began := time.Now(); time.Since(began) < patience; time.Sleep(50 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(s.Context(), 10*time.Second)
		last = reached(ctx)
		cancel()
		if last == "" {
			return true
		}
	}
	s.Errorf("%s: not within %v: %s", what, patience, last)
	return false
}
