//go:build engine

package docker

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// mostImage is the largest image in bytes, as it is stored in a registry and pulled from there.
const mostImage = 25 << 20

func TestOrdersSurviveKillsAndCuts(t *testing.T) {
	t.Parallel() // its profiles with the other tests
	for name, p := range profiles {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStack(t, p, name, name)
			s.up()
			s.strike()
			await(t, "no task is left", func() bool { return s.remains() == 0 })
			first, second := s.workers()
			s.healthy("healthy", first, second)
			must(t, "stop", first, second)
			for _, c := range []string{first, second} {
				if log := must(t, "logs", c); !strings.Contains(log, "; 0 overlaps") {
					t.Errorf("%s has ended otherwise than without overlaps:\n%s", c, log)
				}
			}
			out, err := s.result()
			if err != nil || !strings.Contains(out, "OK: no overlap") {
				t.Fatalf("%v\n%s", err, out)
			}
			t.Log(out)
		})
	}
}

func TestContainersOfWorkersHaveNoRights(t *testing.T) {
	t.Parallel()
	s := newStack(t, profiles["single"], "rights", "single")
	s.up()
	first, _ := s.workers()
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
	// What the kernel says of the processes themselves. A health check may be among them. One that is being started is
	// still a process of the engine.
	var top string
	await(t, "no health check is being started", func() bool {
		top = must(t, "top", container, "-o", "uid,pid,args")
		return !strings.Contains(top, "runc init")
	})
	services := 0
	for _, process := range strings.Split(strings.TrimSpace(top), "\n")[1:] {
		if !strings.HasPrefix(process, "65532 ") {
			t.Errorf("a process is not of user 65532:\n%s", top)
		}
		if !strings.Contains(process, "-health") && !strings.HasSuffix(process, "<defunct>") {
			services++
		}
	}
	if services != 1 {
		t.Errorf("the processes are\n%s\nwant one besides health checks", top)
	}
	for _, want := range []string{"CapEff:\t0000000000000000", "CapBnd:\t0000000000000000", "NoNewPrivs:\t1"} {
		if status := processStatus(t, c.State.Pid); !strings.Contains(status, want) {
			t.Errorf("no %q in the status of the process:\n%s", want, status)
		}
	}
}

func TestImagesAreSmall(t *testing.T) {
	t.Parallel()
	mustBuild(t)
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
