package docker

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/worker"
)

// The containers show what is wrong with most of the files, see containers_test.go. The tests here are of what they do not show.

// service is what we read of a service of the compose file.
type service struct {
	Image, Restart  string
	Profiles        []string
	Command         []string
	Environment     map[string]string
	Volumes         []string
	StopGracePeriod string `yaml:"stop_grace_period"`
}

// readCompose reads the services of the compose file, by name.
func readCompose(t testing.TB) map[string]service {
	t.Helper()
	text, err := os.ReadFile("compose.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var c struct{ Services map[string]service }
	if err := yaml.Unmarshal(text, &c); err != nil {
		t.Fatal(err)
	}
	return c.Services
}

// setEnv gives the test an environment in which exactly these of our variables are set.
func setEnv(t *testing.T, vars map[string]string) {
	t.Helper()
	for _, entry := range os.Environ() {
		if name, _, _ := strings.Cut(entry, "="); strings.HasPrefix(name, "RAILTOKEN_") {
			t.Setenv(name, "") // has it restored after the test
			if err := os.Unsetenv(name); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, value := range vars {
		t.Setenv(name, value)
	}
}

func TestImagesArePinned(t *testing.T) {
	t.Parallel()
	for _, file := range []string{"Dockerfile", "compose.yaml", "kubernetes.yaml"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		images := regexp.MustCompile(`(?m)^(?:FROM| *image:) (\S+)`).FindAllStringSubmatch(string(text), -1)
		if len(images) < 2 {
			t.Errorf("%s: found only the images %q", file, images)
		}
		for _, image := range images {
			if !regexp.MustCompile(`:v?\d+\.\d+|:local$|@sha256:|^scratch$`).MatchString(image[1]) {
				t.Errorf("%s: %q is not pinned to a version", file, image[1])
			}
		}
	}
}

// shutdownRest is what a worker may take beyond its shutdown timeout: 5 s for handlers that it has cancelled, 5 s to give a key back.
const shutdownRest = 10 * time.Second

func TestComposeConfiguresTheWorkers(t *testing.T) {
	workers := 0
	for name, s := range readCompose(t) {
		serves, produces := slices.Contains(s.Command, "-serve"), slices.Contains(s.Command, "-produce")
		if want := map[bool]string{true: "on-failure", false: "unless-stopped"}[produces]; s.Restart != want && name != "cluster" {
			t.Errorf("%s has the restart policy %q, want %q", name, s.Restart, want)
		}
		if !serves && !produces {
			continue
		}
		setEnv(t, s.Environment) // FromEnv refuses variables that it does not know
		cfg, err := worker.FromEnv()
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if !serves {
			continue
		}
		workers++
		if grace, err := time.ParseDuration(s.StopGracePeriod); err != nil || grace < cfg.ShutdownTimeout+shutdownRest {
			t.Errorf("%s is killed after %v, %v; it may take %v", name, grace, err, cfg.ShutdownTimeout+shutdownRest)
		}
	}
	if workers != 5 {
		t.Errorf("%d services are workers, want one for each profile", workers)
	}
}

func TestComposeRedisKeepsItsData(t *testing.T) {
	t.Parallel()
	redis := readCompose(t)["redis"]
	if !slices.Equal(redis.Volumes, []string{"redis:/data"}) {
		t.Errorf("its data is on %q", redis.Volumes)
	}
	client := redistest.Start(t, redis.Command[1:]...).Client(t)
	for setting, want := range map[string]string{"appendonly": "yes", "maxmemory-policy": "noeviction", "maxmemory": "268435456"} {
		if got, err := client.ConfigGet(t.Context(), setting).Result(); err != nil || got[setting] != want {
			t.Errorf("%s is %q, %v; want %q", setting, got[setting], err, want)
		}
	}
}

func TestTheAdminPageChangesNothing(t *testing.T) {
	t.Parallel()
	if command := strings.Join(readCompose(t)["admin"].Command, " "); command == "" || strings.Contains(command, "--allow-actions") {
		t.Errorf("its command is %q", command)
	}
}
