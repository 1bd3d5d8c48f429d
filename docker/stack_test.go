//go:build engine

package docker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/railtoken/railtoken/internal/lanes"
)

const (
	// batch is how many orders are produced at a time: two tasks each.
	batch = 600
	// pace is how long a task works. So two workers have many tasks in hand, and one after the other on the keys of a seller that is
	// in a quarter of the orders, for half a minute at least.
	pace = "200ms,400ms"
	// away is how long a worker is cut off: until its locks, of 30 s, have expired, and other workers have them.
	away = 35 * time.Second
	// patience bounds every wait for an event, also on a busy machine; limit bounds all of them.
	patience = 8 * time.Minute
)

// profile is what differs between the profiles of the compose file.
type profile struct {
	suffix  string            // of the names of its worker and producer
	queues  string            // the service whose redis-cli knows the queues
	heir    string            // the service that knows them when the victims have been away; "" for the same
	victims map[string]string // services that are killed, or cut off, while the tasks run
}

const (
	killed = "killed"
	cutOff = "cut off"
)

var profiles = map[string]profile{
	"single": {"", "redis", "", map[string]string{"redis": cutOff}},
	// Two of five: a majority is left.
	"redlock":  {"-redlock", "redis", "", map[string]string{"lock-2": killed, "lock-3": cutOff}},
	"sentinel": {"-sentinel", "redis-primary", "redis-replica", map[string]string{"redis-primary": killed}},
	"cluster":  {"-cluster", "node-2", "", map[string]string{"node-1": killed}},
}

// limit is how long the tests may take once the images are built, however long that has taken.
const limit = 15 * time.Minute

// built builds the images, once. It ends the tests when they have taken too long since then.
var built = sync.OnceValue(func() error {
	_, err := dockerWithin(context.Background(), "compose", "-f", "docker/compose.yaml", "--profile", "observability",
		"build", "--quiet", "worker-observability", "admin")
	time.AfterFunc(limit, func() {
		debug.SetTraceback("all")
		panic("the tests have not ended " + limit.String() + " after the images were built")
	})
	return err
})

// mustBuild waits until the images are built.
func mustBuild(t testing.TB) {
	t.Helper()
	if err := built(); err != nil {
		t.Fatal(err)
	}
}

// docker runs the command and returns what it prints.
func docker(t testing.TB, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	return dockerWithin(ctx, args...)
}

func dockerWithin(ctx context.Context, args ...string) (string, error) {
	var out, errOut bytes.Buffer
	cmd := exec.CommandContext(ctx, "docker", args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = "..", &out, &errOut
	cmd.Env = append(os.Environ(), "PROMETHEUS_PORT=", "GRAFANA_PORT=", "ADMIN_PORT=") // any that are free
	if err := cmd.Run(); err != nil {
		return out.String(), errors.New("docker " + strings.Join(args, " ") + ": " + err.Error() + "\n" + errOut.String())
	}
	return strings.TrimSpace(out.String()), nil
}

// must runs the command, which may not fail.
func must(t testing.TB, args ...string) string {
	t.Helper()
	out, err := docker(t, args...)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return out
}

// await waits until a condition holds.
func await(t testing.TB, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.After(patience); !holds(); {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// stack is the services of a profile.
type stack struct {
	testing.TB
	profile
	project, name string

	paced  string   // a compose file that adds the pace to that of the profile
	names  []string // of the queues, in all lanes
	orders int      // how many have been produced
}

// newStack returns the stack of a profile. Everything of it is removed at the end of the test.
func newStack(t testing.TB, p profile, project, name string) *stack {
	t.Helper()
	s := &stack{TB: t, profile: p, project: "railtoken-test-" + project, name: name, paced: filepath.Join(t.TempDir(), "paced.json")}
	worker := "worker" + p.suffix
	services := readCompose(t)
	count, _ := strconv.Atoi(services[worker].Environment["RAILTOKEN_LANES"])
	in, fault := lanes.New(count)
	for _, queue := range []string{"audit-compose", "allocate-compose"} {
		s.names = append(append(s.names, queue), in.Queues(queue)...)
	}
	text, err := json.Marshal(map[string]any{"services": map[string]any{
		worker: map[string]any{"command": append(services[worker].Command, "-work", pace)},
	}})
	if err := errors.Join(fault, err, os.WriteFile(s.paced, text, 0o600)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
		defer cancel()
		if t.Failed() {
			log, _ := dockerWithin(ctx, s.compose("logs", "--no-color", "--tail", "12")...)
			t.Log(log)
		}
		// A busy engine may take a network for in use a while after its last container has gone.
		var err error
		for range 30 {
			if _, err = dockerWithin(ctx, s.compose("down", "-v", "--timeout", "1")...); err == nil {
				return
			}
			t.Log(err)
			again := time.NewTimer(time.Second)
			<-again.C
		}
		t.Error(err)
	})
	return s
}

// compose returns the arguments of docker compose for the profile.
func (s *stack) compose(args ...string) []string {
	return append([]string{"compose", "-p", s.project, "-f", "docker/compose.yaml", "-f", s.paced, "--profile", s.name}, args...)
}

// up starts the workers, what they depend on, and other services, and waits until the workers are ready. Nothing runs beside the
// build of the images, which needs the whole machine.
func (s *stack) up(others ...string) {
	s.Helper()
	mustBuild(s)
	must(s, slices.Concat(s.compose("up", "-d", "--no-build"), []string{"worker" + s.suffix}, others)...)
	first, second := s.workers()
	s.healthy("healthy", first, second)
}

// produce enqueues the tasks of further orders.
func (s *stack) produce() {
	s.Helper()
	s.orders += batch
	must(s, s.compose("run", "--rm", "-T", "--no-deps", "producer"+s.suffix, "-produce", "-run", "compose", "-n", strconv.Itoa(s.orders),
		"-single-try", "0")...)
}

// ask runs a shell's command for each queue, with the prefix of a queue's names in $q, in the container that knows them. It returns
// the sum of each number that the command prints.
func (s *stack) ask(command string, numbers int) []int {
	s.Helper()
	out := must(s, "exec", s.container(s.queues, 1), "sh", "-c", "for name in "+strings.Join(s.names, " ")+"; do q=\"asynq:{$name}\"; "+command+"; done")
	fields := strings.Fields(out)
	if len(fields) != len(s.names)*numbers {
		s.Fatalf("%s prints %q", command, out)
	}
	sums := make([]int, numbers)
	for i, text := range fields {
		n, err := strconv.Atoi(text)
		if err != nil {
			s.Fatalf("%s prints %q", command, out)
		}
		sums[i%numbers] += n
	}
	return sums
}

// tasks returns how many tasks workers have in hand, and how many wait to be taken.
func (s *stack) tasks() (active, pending int) {
	s.Helper()
	n := s.ask(`redis-cli -c llen "$q:active"; redis-cli -c llen "$q:pending"`, 2)
	return n[0], n[1]
}

// remains returns how many tasks have not ended. asynq brings back what workers had in hand a minute after they were interrupted, to
// be tried again after another delay: where no others are left, they are due at once.
func (s *stack) remains() int {
	s.Helper()
	const count = `
		local running = redis.call('llen', KEYS[1]) + redis.call('llen', KEYS[2])
		local later = redis.call('zrange', KEYS[3], 0, -1)
		if running == 0 then
			for _, id in ipairs(later) do redis.call('zadd', KEYS[3], 0, id) end
		end
		return running + #later`
	return s.ask(`redis-cli -c eval "`+count+`" 3 "$q:active" "$q:pending" "$q:retry"`, 1)[0]
}

// container returns the name of a container of a service.
func (s *stack) container(service string, n int) string {
	return s.project + "-" + service + "-" + strconv.Itoa(n)
}

// workers returns the names of the workers' containers.
func (s *stack) workers() (first, second string) {
	return s.container("worker"+s.suffix, 1), s.container("worker"+s.suffix, 2)
}

// healthy waits until the health of containers is as wanted.
func (s *stack) healthy(want string, containers ...string) {
	s.Helper()
	for _, c := range containers {
		await(s, c+" is "+want, func() bool { return must(s, "inspect", "-f", "{{.State.Health.Status}}", c) == want })
	}
}

// interrupt kills a worker and cuts another one off while both have tasks in hand and more tasks wait. However long a command takes on
// a busy machine: the queues are paused while the orders are produced, and the workers stand still while we look at what they have in
// hand. It is tried with more orders until that was so.
func (s *stack) interrupt() {
	s.Helper()
	slots, err := strconv.Atoi(readCompose(s)["worker"+s.suffix].Environment["RAILTOKEN_CONCURRENCY"])
	if err != nil {
		s.Fatal(err)
	}
	network := s.project + "_default"
	first, second := s.workers()
	await(s, "both workers are interrupted in their tasks", func() bool {
		s.ask(`redis-cli -c set "$q:paused" 1 >/dev/null`, 0)
		s.produce()
		s.ask(`redis-cli -c del "$q:paused" >/dev/null`, 0)
		await(s, "tasks run", func() bool {
			active, pending := s.tasks()
			return active > slots || pending == 0
		})
		must(s, "pause", first, second)
		active, pending := s.tasks()
		both := active > slots && pending > 0 // more than one worker has slots for
		if both {
			s.Logf("interrupted with %d tasks in hand and %d that wait, of %d", active, pending, 2*s.orders)
			must(s, "kill", first)
			must(s, "network", "disconnect", network, second)
		} else {
			must(s, "unpause", first)
		}
		must(s, "unpause", second)
		return both
	})
}

// strike kills and cuts off: a worker each, and the victims of the profile. Everything is back when it returns.
func (s *stack) strike() {
	s.Helper()
	network := s.project + "_default"
	first, second := s.workers()
	s.interrupt()
	cut := time.NewTimer(away)
	for service, how := range s.victims {
		if how == killed {
			must(s, "kill", s.container(service, 1))
		} else {
			must(s, "network", "disconnect", network, s.container(service, 1))
		}
	}
	must(s, "start", first)
	back := time.NewTimer(5 * time.Second)
	<-back.C
	if s.heir != "" {
		s.queues = s.heir
		await(s, s.heir+" has taken over", func() bool {
			return strings.HasPrefix(must(s, "exec", s.container(s.heir, 1), "redis-cli", "role"), "master")
		})
	}
	for service, how := range s.victims {
		if how == killed {
			must(s, "start", s.container(service, 1))
		} else {
			must(s, "network", "connect", "--alias", service, network, s.container(service, 1))
		}
	}
	<-cut.C
	must(s, "network", "connect", network, second)
}

// result returns the table of what went wrong. Nobody works any more: what is not done is lost.
func (s *stack) result() (string, error) {
	s.Helper()
	return docker(s, s.compose("run", "--rm", "-T", "--no-deps", "producer"+s.suffix, "-workers", "0", "-run", "compose", "-db", "/data/orders.db",
		"-n", strconv.Itoa(s.orders), "-single-try", "0", "-timeline", "", "-timeout", "30s")...)
}
