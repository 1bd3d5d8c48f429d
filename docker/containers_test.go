//go:build engine

package docker

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"
)

const (
	// orders is how many orders a profile works on: two tasks each.
	orders = 6000
	// away is how long a worker is cut off: until its locks, of 30 s, have expired, and other workers have them.
	away = 35 * time.Second
	// patience bounds every wait for an event, also on a busy machine.
	patience = 8 * time.Minute
	// mostImage is the largest image in bytes, as it is stored in a registry and pulled from there.
	mostImage = 25 << 20
)

// profile is what differs between the profiles of the compose file.
type profile struct {
	suffix  string            // of the names of its worker and producer
	queues  string            // the service whose redis-cli knows the queues
	victims map[string]string // services that are killed, or cut off, while the tasks run
}

const (
	killed = "killed"
	cutOff = "cut off"
)

var profiles = map[string]profile{
	"single": {"", "redis", map[string]string{"redis": cutOff}},
	// Two of five: a majority is left.
	"redlock":  {"-redlock", "redis", map[string]string{"lock-2": killed, "lock-3": cutOff}},
	"sentinel": {"-sentinel", "redis-replica", map[string]string{"redis-primary": killed}},
	"cluster":  {"-cluster", "node-2", map[string]string{"node-1": killed}},
}

// docker runs the command and returns what it prints.
func docker(t testing.TB, args ...string) (string, error) {
	t.Helper()
	return dockerWithin(t.Context(), args...)
}

func dockerWithin(ctx context.Context, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var out, errOut bytes.Buffer
	cmd := exec.CommandContext(ctx, "docker", args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = root, &out, &errOut
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
}

// compose returns the arguments of docker compose for the profile.
func (s *stack) compose(args ...string) []string {
	return append([]string{"compose", "-p", s.project, "-f", "docker/compose.yaml", "--profile", s.name}, args...)
}

// up starts the workers and what they depend on, after the producer has ended, and other services. Everything is removed at the
// end of the test.
func (s *stack) up(others ...string) {
	s.Helper()
	s.Cleanup(func() {
		ctx := context.WithoutCancel(s.Context())
		if s.Failed() {
			log, _ := dockerWithin(ctx, s.compose("logs", "--no-color", "--tail", "12")...)
			s.Log(log)
		}
		if out, err := dockerWithin(ctx, s.compose("down", "-v", "--timeout", "1")...); err != nil {
			s.Errorf("%v\n%s", err, out)
		}
	})
	s.produce(orders)
	must(s, append(s.compose("up", "-d", "--no-build", "worker"+s.suffix), others...)...)
}

// produce enqueues the tasks of n orders.
func (s *stack) produce(n int) {
	s.Helper()
	must(s, s.compose("run", "--rm", "-T", "producer"+s.suffix, "-produce", "-run", "compose", "-n", strconv.Itoa(n), "-single-try", "0")...)
}

// pending returns how many tasks no worker has taken.
func (s *stack) pending() int {
	s.Helper()
	total := 0
	for _, queue := range []string{"audit-compose", "allocate-compose"} {
		n := must(s, s.compose("exec", "-T", s.queues, "redis-cli", "-c", "llen", "asynq:{"+queue+"}:pending")...)
		length, err := strconv.Atoi(n)
		if err != nil {
			s.Fatalf("the length of %s: %q", queue, n)
		}
		total += length
	}
	return total
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

// strike kills and cuts off: a worker each, and the victims of the profile. Everything is back when it returns.
func (s *stack) strike() {
	s.Helper()
	network := s.project + "_default"
	first, second := s.workers()
	must(s, "kill", first)
	must(s, "network", "disconnect", network, second)
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
	for service, how := range s.victims {
		if how == killed {
			must(s, "start", s.container(service, 1))
		} else {
			must(s, "network", "connect", "--alias", service, network, s.container(service, 1))
		}
	}
	back.Reset(away)
	<-back.C
	must(s, "network", "connect", network, second)
}

// unacknowledged is why the queues cannot be deleted until asynq has brought back tasks that were done when their worker was
// killed, before it could say so.
const unacknowledged = "cannot remove queue with active tasks"

// result waits for the end of all tasks and returns the table of what went wrong.
func (s *stack) result() (string, error) {
	s.Helper()
	return docker(s, s.compose("run", "--rm", "-T", "producer"+s.suffix, "-workers", "0", "-run", "compose", "-db", "/data/orders.db",
		"-n", strconv.Itoa(orders), "-single-try", "0", "-timeline", "", "-timeout", (patience-time.Minute).String())...)
}

func TestOrdersSurviveKillsAndCuts(t *testing.T) {
	for name, p := range profiles {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &stack{t, p, "railtoken-test-" + name, name}
			s.up()
			var left int
			await(t, "tasks run", func() bool { left = s.pending(); return left < 2*orders })
			if left == 0 {
				t.Errorf("all tasks were taken before anything was killed: raise orders")
			}
			s.strike()
			out, err := s.result()
			for deadline := time.Now().Add(patience); err != nil && strings.Contains(err.Error(), unacknowledged) && time.Now().Before(deadline); {
				out, err = s.result()
			}
			if err != nil || !strings.Contains(out, "OK: no overlap") {
				t.Fatalf("%v\n%s", err, out)
			}
			t.Log(out)
			first, second := s.workers()
			s.healthy("healthy", first, second)
			must(t, "stop", first, second)
			for _, c := range []string{first, second} {
				if log := must(t, "logs", c); !strings.Contains(log, "; 0 overlaps") {
					t.Errorf("%s has ended otherwise than without overlaps:\n%s", c, log)
				}
			}
		})
	}
}

func TestContainersOfWorkersHaveNoRights(t *testing.T) {
	t.Parallel()
	s := &stack{t, profiles["single"], "railtoken-test-rights", "single"}
	s.up()
	first, second := s.workers()
	s.healthy("healthy", first, second)
	hasNoRights(t, first)
	must(t, "pause", s.container("redis", 1))
	s.healthy("unhealthy", first)
	must(t, "unpause", s.container("redis", 1))
	s.healthy("healthy", first)
	if live, err := docker(t, "exec", first, "/orders", "-health", "http://127.0.0.1:8066/livez"); err != nil || live != "live" {
		t.Errorf("%q, %v", live, err)
	}
}

// hasNoRights checks that the process of a container may do nothing that it need not.
func hasNoRights(t *testing.T, container string) {
	t.Helper()
	var found []struct {
		Config     struct{ User string }
		HostConfig struct {
			ReadonlyRootfs, Privileged   bool
			SecurityOpt, CapDrop, CapAdd []string
		}
		State struct{ Pid int }
	}
	if err := json.Unmarshal([]byte(must(t, "inspect", container)), &found); err != nil || len(found) != 1 {
		t.Fatal(found, err)
	}
	c := found[0]
	if user, _, _ := strings.Cut(c.Config.User, ":"); user == "" || user == "0" || user == "root" {
		t.Errorf("the user is %q", c.Config.User)
	}
	if !c.HostConfig.ReadonlyRootfs || c.HostConfig.Privileged || len(c.HostConfig.CapAdd) > 0 {
		t.Errorf("%+v; want a read-only root and no privileges", c.HostConfig)
	}
	// What the kernel says of the process itself.
	top := must(t, "top", container, "-o", "pid,uid,args")
	if lines := strings.Split(top, "\n"); len(lines) != 2 || !strings.Contains(lines[1], "65532") {
		t.Errorf("the processes are\n%s\nwant one, of user 65532", top)
	}
	for _, want := range []string{"CapEff:\t0000000000000000", "CapBnd:\t0000000000000000", "NoNewPrivs:\t1"} {
		if status := processStatus(t, c.State.Pid); !strings.Contains(status, want) {
			t.Errorf("no %q in the status of the process:\n%s", want, status)
		}
	}
}

func TestImagesAreSmall(t *testing.T) {
	for _, name := range []string{"railtoken-orders:local", "railtoken:local"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			isSmall(t, name)
		})
	}
}

// isSmall checks the size of an image.
func isSmall(t *testing.T, name string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "docker", "save", name)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var size counter
	zipped := gzip.NewWriter(&size)
	unpacked, err := io.Copy(zipped, out)
	if err := errors.Join(err, zipped.Close(), cmd.Wait()); err != nil {
		t.Fatal(err)
	}
	t.Logf("the image has %.1f MB, %.1f MB unpacked", float64(size)/(1<<20), float64(unpacked)/(1<<20))
	if size < 1<<20 || size > mostImage {
		t.Errorf("the image has %d bytes; want at most %d", size, mostImage)
	}
}

// counter counts what is written.
type counter int64

func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}

// processStatus returns what the kernel says of a process of a container, whose engine must be on this machine.
func processStatus(t testing.TB, pid int) string {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	return string(status)
}
