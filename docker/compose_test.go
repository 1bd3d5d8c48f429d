package docker

import (
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/worker"
)

func TestEachProfileHasTwoWorkersAndAProducer(t *testing.T) {
	t.Parallel()
	c := readCompose(t)
	servers := map[string]int{"single": 1, "redlock": 6, "sentinel": 5, "cluster": 7, "observability": 4}
	for name, s := range c.Services {
		if len(s.Profiles) == 0 {
			t.Errorf("%s is in no profile: it would run in all of them", name)
		}
	}
	for profile, want := range servers {
		workers, producers, others := 0, 0, 0
		for _, s := range c.Services {
			switch {
			case !slices.Contains(s.Profiles, profile):
			case slices.Contains(s.Command, "-serve"):
				workers += s.Deploy.Replicas
			case slices.Contains(s.Command, "-produce"):
				producers++
			default:
				others++
			}
		}
		if workers != 2 || producers != 1 || others != want {
			t.Errorf("%s has %d workers, %d producers and %d others; want 2, 1 and %d", profile, workers, producers, others, want)
		}
	}
}

func TestComposeVariablesAreThoseOfTheWorker(t *testing.T) {
	for name, s := range readCompose(t).Services {
		if s.Build == nil {
			continue
		}
		t.Run(name, func(t *testing.T) {
			for variable := range s.Environment {
				if strings.HasPrefix(variable, "RAILTOKEN_") && !slices.Contains(worker.EnvNames(), variable) {
					t.Errorf("%s is no variable of the worker", variable)
				}
			}
			setEnv(t, s.Environment)
			cfg, err := worker.FromEnv()
			if err != nil {
				t.Fatal(err)
			}
			addrs := slices.Concat([]string{cfg.Redis.Addr}, cfg.Redis.Sentinels, cfg.LockRedis.Nodes)
			if len(cfg.Redis.Cluster) > 0 {
				addrs = []string{"cluster"} // which has waited for the nodes
			}
			for _, addr := range addrs {
				host, _, _ := strings.Cut(addr, ":")
				if _, ok := s.DependsOn[host]; host != "" && !ok {
					t.Errorf("its Redis is on %q, which it does not wait for", host)
				}
			}
		})
	}
}

func TestComposeImagesArePinned(t *testing.T) {
	t.Parallel()
	for name, s := range readCompose(t).Services {
		if s.Build != nil {
			continue // built here
		}
		if !pinned(s.Image) {
			t.Errorf("%s: %q is not pinned to a version", name, s.Image)
		}
	}
	for name, s := range readCompose(t).Services {
		if strings.HasPrefix(s.Image, "redis:") && !regexp.MustCompile(`^redis:7\.\d+\.\d+\b`).MatchString(s.Image) {
			t.Errorf("%s is %q; want a release of version 7", name, s.Image)
		}
	}
}

func TestComposeBuildsOurDockerfile(t *testing.T) {
	t.Parallel()
	for name, s := range readCompose(t).Services {
		if s.Build == nil {
			continue
		}
		if _, err := os.Stat(filepath.Join(s.Build.Context, s.Build.Dockerfile)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := os.Stat(filepath.Join(s.Build.Context, "go.work")); err != nil {
			t.Errorf("%s is not built from the root of the repository: %v", name, err)
		}
		if !slices.ContainsFunc(readDockerfile(t), func(d stage) bool { return d.as == s.Build.Target && d.image == "scratch" }) {
			t.Errorf("%s is built from the stage %q, which is none of the images", name, s.Build.Target)
		}
	}
}

// TestComposeRedisIsFitForTheWorker starts a redis-server as the compose file does, and a worker with the compose file's variables.
func TestComposeRedisIsFitForTheWorker(t *testing.T) {
	c := readCompose(t)
	command := c.Services["redis"].Command
	if len(command) < 2 || command[0] != "redis-server" {
		t.Fatalf("the command of redis is %q", command)
	}
	server := redistest.Start(t, command[1:]...)
	for setting, want := range map[string]string{"appendonly": "yes", "maxmemory-policy": "noeviction"} {
		got, err := server.Client(t).ConfigGet(t.Context(), setting).Result()
		if err != nil || got[setting] != want {
			t.Errorf("%s is %q, %v; want %q", setting, got[setting], err, want)
		}
	}
	if limit, err := server.Client(t).ConfigGet(t.Context(), "maxmemory").Result(); err != nil || limit["maxmemory"] == "0" {
		t.Errorf("maxmemory is %q, %v; want a limit", limit["maxmemory"], err)
	}

	setEnv(t, c.Services["worker"].Environment)
	t.Setenv("RAILTOKEN_REDIS_ADDR", server.Addr())
	cfg, err := worker.FromEnv()
	if err != nil {
		t.Fatal(err)
	}
	w, err := worker.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := worker.Handle(w, "audit", worker.Handler[string]{Run: nothing, Keys: func(key string) []string { return []string{key} }}); err != nil {
		t.Fatal(err)
	}
	if err := w.Start(t.Context()); err != nil {
		t.Error(err)
	}
	if err := w.Shutdown(); err != nil {
		t.Error(err)
	}
}

func TestComposeWaitsForServicesThatCanBeHealthy(t *testing.T) {
	t.Parallel()
	c := readCompose(t)
	for name, s := range c.Services {
		for on, d := range s.DependsOn {
			other, ok := c.Services[on]
			unchecked := other.Healthcheck.Disable || len(other.Healthcheck.Test) == 0 && other.Build == nil
			if !ok || d.Condition == "service_healthy" && unchecked {
				t.Errorf("%s waits for %s (%s), which is not there or has no healthcheck", name, on, d.Condition)
			}
		}
		if s.Build != nil && len(s.DependsOn) == 0 {
			t.Errorf("%s does not wait for its Redis", name)
		}
		check := s.Healthcheck
		if len(check.Test) == 0 {
			continue
		}
		if check.Test[0] != "CMD" && check.Test[0] != "CMD-SHELL" || check.Retries < 1 {
			t.Errorf("%s has the healthcheck %+v", name, check)
		}
		duration(t, name+": interval", check.Interval)
		duration(t, name+": timeout", check.Timeout)
	}
}

func TestComposeWorkersShareRunAndDatabase(t *testing.T) {
	t.Parallel()
	c := readCompose(t)
	workers := c.flagged("-serve")
	first := c.Services[workers[0]]
	db := first.value("-db")
	volume := first.volumeOf(db)
	if _, ok := c.Volumes[volume]; !ok {
		t.Errorf("the database %q is on the volume %q, which is not declared", db, volume)
	}
	for _, name := range workers {
		if s := c.Services[name]; s.value("-db") != db || s.volumeOf(db) != volume || s.value("-run") != first.value("-run") {
			t.Errorf("%s runs %q on %v, %s %q on %v", name, s.Command, s.Volumes, workers[0], first.Command, first.Volumes)
		}
	}
	for _, name := range c.flagged("-produce") {
		if run := c.Services[name].value("-run"); run == "" || run != first.value("-run") {
			t.Errorf("%s enqueues for run %q, the workers serve %q", name, run, first.value("-run"))
		}
	}
	if redis := c.Services["redis"]; redis.volumeOf("/data/appendonlydir") == "" || redis.volumeOf("/data/appendonlydir") == volume {
		t.Errorf("redis keeps its data on %v; want a volume of its own", redis.Volumes)
	}
	for name, s := range c.Services {
		for _, v := range s.Volumes {
			volume, _, _ := strings.Cut(v, ":")
			if strings.HasPrefix(volume, ".") {
				if info, err := os.Stat(volume); err != nil || !info.Mode().IsRegular() || !strings.HasSuffix(v, ":ro") {
					t.Errorf("%s mounts %q: %v; want a file that is there, read-only", name, v, err)
				}
			} else if !hasKey(c.Volumes, volume) {
				t.Errorf("%s mounts %q, which is not declared", name, v)
			}
		}
	}
}

func hasKey[V any](m map[string]V, key string) bool {
	_, ok := m[key]
	return ok
}

// shutdownRest is what a worker may take beyond its shutdown timeout: 5 s for handlers that it has cancelled, 5 s to give a key back.
const shutdownRest = 10 * time.Second

func TestComposeGivesWorkersTheTimeToShutDown(t *testing.T) {
	c := readCompose(t)
	for _, name := range c.flagged("-serve") {
		t.Run(name, func(t *testing.T) {
			s := c.Services[name]
			setEnv(t, s.Environment)
			cfg, err := worker.FromEnv()
			if err != nil {
				t.Fatal(err)
			}
			timeout := cfg.ShutdownTimeout
			if timeout == 0 {
				timeout = worker.DefaultShutdownTimeout
			}
			if grace := duration(t, "stop_grace_period", s.StopGracePeriod); grace < timeout+shutdownRest {
				t.Errorf("it is killed after %v; it may take %v", grace, timeout+shutdownRest)
			}
		})
	}
}

func TestComposeRestartsWhatMustGoOn(t *testing.T) {
	t.Parallel()
	c := readCompose(t)
	for name, s := range c.Services {
		goesOn := !slices.Contains(s.Command, "-produce") && name != "cluster"
		if got := s.Restart; goesOn && got != "unless-stopped" && got != "always" {
			t.Errorf("%s has the restart policy %q", name, got)
		}
	}
	for _, name := range c.flagged("-produce") {
		s := c.Services[name]
		if s.Restart != "on-failure" && s.Restart != "no" {
			t.Errorf("%s would be started again when it is done: restart %q", name, s.Restart)
		}
		if !s.Healthcheck.Disable {
			t.Errorf("%s would be unhealthy: it is no worker", name)
		}
	}
}

func TestWorkersListenWhereTheHealthcheckAsks(t *testing.T) {
	t.Parallel()
	c := readCompose(t)
	check := strings.Join(image(t, "orders").all("HEALTHCHECK"), " ")
	for _, name := range c.flagged("-serve") {
		s := c.Services[name]
		host, port, err := net.SplitHostPort(s.value("-listen"))
		if err != nil || !strings.Contains(check, `"http://127.0.0.1:`+port+`/readyz"`) {
			t.Errorf("%s listens at %q, %v; the image asks %s", name, s.value("-listen"), err, check)
		}
		// Prometheus asks from another container.
		if scraped := slices.Contains(s.Profiles, "observability"); scraped != (host == "") || host != "" && host != "127.0.0.1" {
			t.Errorf("%s listens at the host %q; want all where it is scraped, and 127.0.0.1 elsewhere", name, host)
		}
		if len(s.Ports) > 0 {
			t.Errorf("%s publishes %q", name, s.Ports)
		}
	}
}

func TestPagesArePublishedOnTheLoopbackInterface(t *testing.T) {
	t.Parallel()
	published := 0
	for name, s := range readCompose(t).Services {
		for _, port := range s.Ports {
			published++
			if !strings.HasPrefix(port, "127.0.0.1:") {
				t.Errorf("%s publishes %q", name, port)
			}
		}
	}
	if published != 3 {
		t.Errorf("%d ports are published; want those of Prometheus, Grafana and the admin page", published)
	}
}

func TestTheAdminPageChangesNothing(t *testing.T) {
	t.Parallel()
	s := readCompose(t).Services["admin"]
	_, port, err := net.SplitHostPort(s.value("--listen"))
	if check := strings.Join(image(t, "railtoken").all("HEALTHCHECK"), " "); err != nil || !strings.Contains(check, `"http://127.0.0.1:`+port+`/"`) {
		t.Errorf("it listens at %q, %v; the image asks %s", s.value("--listen"), err, check)
	}
	if s.value("--host") == "" {
		t.Error("--host is not given: a foreign site can reach the page by a name of its own")
	}
	for _, arg := range s.Command {
		if strings.HasPrefix(arg, "--allow-actions") {
			t.Errorf("its command has %s", arg)
		}
	}
}
