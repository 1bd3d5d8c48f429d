package docker

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/railtoken/railtoken/worker"
)

// manifest is what we use of an object of Kubernetes. It is read strictly: a field that is not here is taken for a slip.
type manifest struct {
	APIVersion string `yaml:"apiVersion"`
	Kind       string
	Metadata   struct{ Name string }
	Data       map[string]string
	Spec       struct {
		Replicas int
		Selector any
		Ports    []struct {
			Name       string
			Port       int
			TargetPort string `yaml:"targetPort"`
		}
		Template struct {
			Metadata struct{ Labels map[string]string }
			Spec     pod
		}
	}
}

type pod struct {
	Grace           int  `yaml:"terminationGracePeriodSeconds"`
	AutomountToken  bool `yaml:"automountServiceAccountToken"`
	SecurityContext struct {
		RunAsNonRoot   bool `yaml:"runAsNonRoot"`
		RunAsUser      int  `yaml:"runAsUser"`
		FSGroup        int  `yaml:"fsGroup"`
		SeccompProfile any  `yaml:"seccompProfile"`
	} `yaml:"securityContext"`
	Containers []container
	Volumes    []struct {
		Name   string
		Secret struct {
			SecretName  string `yaml:"secretName"`
			DefaultMode int    `yaml:"defaultMode"`
		}
		EmptyDir any `yaml:"emptyDir"`
	}
}

type container struct {
	Name, Image string
	Args        []string
	EnvFrom     []struct {
		ConfigMapRef struct{ Name string } `yaml:"configMapRef"`
	} `yaml:"envFrom"`
	Env   []struct{ Name, Value string }
	Ports []struct {
		Name          string
		ContainerPort int `yaml:"containerPort"`
	}
	StartupProbe    probe `yaml:"startupProbe"`
	ReadinessProbe  probe `yaml:"readinessProbe"`
	LivenessProbe   probe `yaml:"livenessProbe"`
	Resources       struct{ Requests, Limits map[string]string }
	SecurityContext struct {
		Escalation   bool `yaml:"allowPrivilegeEscalation"`
		ReadOnly     bool `yaml:"readOnlyRootFilesystem"`
		Capabilities struct{ Drop []string }
	} `yaml:"securityContext"`
	VolumeMounts []mount `yaml:"volumeMounts"`
}

type mount struct {
	Name      string
	MountPath string `yaml:"mountPath"`
	ReadOnly  bool   `yaml:"readOnly"`
}

type probe struct {
	HTTPGet          struct{ Path, Port string } `yaml:"httpGet"`
	Exec             struct{ Command []string }
	PeriodSeconds    int `yaml:"periodSeconds"`
	TimeoutSeconds   int `yaml:"timeoutSeconds"`
	FailureThreshold int `yaml:"failureThreshold"`
}

// deployed returns the pods of the manifest and the variables of their containers, by the names of the Deployments.
func deployed(t *testing.T) (pods map[string]pod, variables map[string]map[string]string) {
	t.Helper()
	text, err := os.ReadFile("kubernetes.yaml")
	if err != nil {
		t.Fatal(err)
	}
	pods, variables = map[string]pod{}, map[string]map[string]string{}
	configs := map[string]map[string]string{}
	for decoder := yaml.NewDecoder(bytes.NewReader(text), yaml.Strict()); ; {
		var m manifest
		if err := decoder.Decode(&m); errors.Is(err, io.EOF) {
			return pods, variables
		} else if err != nil {
			t.Fatal(err)
		}
		switch m.Kind {
		case "ConfigMap":
			configs[m.Metadata.Name] = m.Data
		case "Deployment":
			p := m.Spec.Template.Spec
			set := map[string]string{}
			for _, c := range p.Containers {
				for _, from := range c.EnvFrom {
					maps.Copy(set, configs[from.ConfigMapRef.Name])
				}
				for _, v := range c.Env {
					set[v.Name] = v.Value
				}
			}
			pods[m.Metadata.Name], variables[m.Metadata.Name] = p, set
		case "Service":
		default:
			t.Errorf("the manifest has a %s", m.Kind)
		}
	}
}

func TestManifestConfiguresTheWorker(t *testing.T) {
	pods, variables := deployed(t)
	if len(pods) != 2 {
		t.Fatalf("the manifest deploys %d programs, want the worker and the admin page", len(pods))
	}
	dir := t.TempDir()
	for name, set := range variables {
		for variable, file := range set {
			if strings.HasSuffix(variable, "PASSWORD_FILE") { // TLS files need an authority: package worker tests them
				set[variable] = filepath.Join(dir, path.Base(file))
				if err := os.WriteFile(set[variable], []byte("secret\n"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if strings.HasSuffix(variable, "_FILE") {
				mounted := slices.ContainsFunc(pods[name].Containers[0].VolumeMounts, func(m mount) bool {
					return path.Dir(file) == m.MountPath && m.ReadOnly && m.Name == "redis"
				})
				if !mounted {
					t.Errorf("%s: %s is %s, where no secret is mounted", name, variable, file)
				}
			}
			if strings.Contains(variable, "_TLS_") {
				if !slices.Contains(worker.EnvNames(), variable) {
					t.Errorf("%s: %s is no variable of the worker", name, variable)
				}
				delete(set, variable)
			}
		}
		setEnv(t, set)
		cfg, err := worker.FromEnv()
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if cfg.Redis.Password != "secret" {
			t.Errorf("%s has no password", name)
		}
	}
}

func TestManifestGivesWorkersTheTimeToShutDown(t *testing.T) {
	t.Parallel()
	pods, variables := deployed(t)
	timeout, err := time.ParseDuration(variables["orders-worker"]["RAILTOKEN_SHUTDOWN_TIMEOUT"])
	if err != nil {
		t.Fatal(err)
	}
	if grace := time.Duration(pods["orders-worker"].Grace) * time.Second; grace < timeout+shutdownRest {
		t.Errorf("it is killed after %v; it may take %v", grace, timeout+shutdownRest)
	}
}

func TestManifestAsksTheRightProbes(t *testing.T) {
	t.Parallel()
	pods, _ := deployed(t)
	w, a := pods["orders-worker"].Containers[0], pods["railtoken-admin"].Containers[0]
	for name, p := range map[string]probe{"/livez": w.LivenessProbe, "/readyz": w.ReadinessProbe, "": a.LivenessProbe} {
		if p.HTTPGet.Path != name || name != "" && p.HTTPGet.Port != w.Ports[0].Name || p.TimeoutSeconds < 5 {
			t.Errorf("the probe is %+v, want one of %q with a timeout of 5 s", p, name)
		}
	}
	if w.StartupProbe.HTTPGet.Path != "/livez" {
		t.Error("a worker that has no Redis yet would be restarted") // it is alive, and not ready
	}
	if command := a.ReadinessProbe.Exec.Command; len(command) < 3 || !slices.Equal(command[:3], []string{"/railtoken", "admin", "--health"}) {
		t.Errorf("the admin page is asked by %q", command)
	}
	if !slices.Contains(w.Args, ":8066") || w.Ports[0].ContainerPort != 8066 || a.Ports[0].ContainerPort != 8090 || !slices.Contains(a.Args, "0.0.0.0:8090") {
		t.Errorf("ports %v and %v do not fit %q and %q", w.Ports, a.Ports, w.Args, a.Args)
	}
	if slices.ContainsFunc(a.Args, func(arg string) bool { return strings.HasPrefix(arg, "--allow-actions") }) {
		t.Error("anyone in the cluster may take keys away")
	}
}

func TestManifestConfinesItsContainers(t *testing.T) {
	t.Parallel()
	pods, _ := deployed(t)
	for name, p := range pods {
		c := p.Containers[0]
		if s := p.SecurityContext; !s.RunAsNonRoot || s.RunAsUser != 65532 || s.FSGroup != 65532 || p.AutomountToken {
			t.Errorf("%s: %+v", name, s)
		}
		if s := c.SecurityContext; s.Escalation || !s.ReadOnly || !slices.Equal(s.Capabilities.Drop, []string{"ALL"}) {
			t.Errorf("%s: %+v", name, s)
		}
		for _, v := range p.Volumes {
			if v.Name == "redis" && (v.Secret.SecretName == "" || v.Secret.DefaultMode != 0o440) {
				t.Errorf("%s: the secret is %+v", name, v.Secret)
			}
		}
	}
}
