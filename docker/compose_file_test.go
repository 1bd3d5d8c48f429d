package docker

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
)

// compose is what we use of a compose file. It is read strictly: a key that is not here is taken for a slip.
type compose struct {
	Name      string
	Services  map[string]service
	Volumes   map[string]any
	XConfined any `yaml:"x-confined"`
	XOrders   any `yaml:"x-orders"`
	XWorker   any `yaml:"x-worker"`
	XProducer any `yaml:"x-producer"`
	XSettings any `yaml:"x-settings"`
	XRedis    any `yaml:"x-redis"`
	XPing     any `yaml:"x-ping"`
	XLock     any `yaml:"x-lock"`
	XSentinel any `yaml:"x-sentinel"`
	XNode     any `yaml:"x-node"`
}

type service struct {
	Image    string
	Profiles []string
	Deploy   struct{ Replicas int }
	Build    *struct{ Context, Dockerfile, Target string }

	Command     []string
	Environment map[string]string
	DependsOn   map[string]struct{ Condition string } `yaml:"depends_on"`
	Healthcheck struct {
		Test              []string
		Disable           bool
		Interval, Timeout string
		Retries           int
	}
	Restart         string
	StopGracePeriod string `yaml:"stop_grace_period"`

	Volumes     []string
	Ports       []string
	ReadOnly    bool `yaml:"read_only"`
	Tmpfs       []string
	CapDrop     []string `yaml:"cap_drop"`
	SecurityOpt []string `yaml:"security_opt"`
}

// readCompose reads the compose file.
func readCompose(t testing.TB) compose {
	t.Helper()
	text, err := os.ReadFile("compose.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var c compose
	if err := yaml.UnmarshalWithOptions(text, &c, yaml.Strict()); err != nil {
		t.Fatal(err)
	}
	return c
}

// flagged returns the services whose command has a flag, sorted by name.
func (c compose) flagged(flag string) []string {
	var names []string
	for name, s := range c.Services {
		if slices.Contains(s.Command, flag) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// value returns what stands behind a flag in the command.
func (s service) value(flag string) string {
	if i := slices.Index(s.Command, flag); i >= 0 && i+1 < len(s.Command) {
		return s.Command[i+1]
	}
	return ""
}

// volumeOf returns the volume that a path of the service is on, or "".
func (s service) volumeOf(file string) string {
	for _, v := range s.Volumes {
		if volume, target, ok := strings.Cut(v, ":"); ok && strings.HasPrefix(file, target+"/") {
			return volume
		}
	}
	return ""
}

// duration reads a duration that must be there.
func duration(t testing.TB, what, text string) time.Duration {
	t.Helper()
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Errorf("%s: %v", what, err)
	}
	return d
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
