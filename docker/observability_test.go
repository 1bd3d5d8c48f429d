package docker

import (
	"encoding/json"
	"net"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

// readStrict reads a file into data. A key that data does not have is taken for a slip.
func readStrict(t *testing.T, name string, data any) {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalWithOptions(text, data, yaml.Strict()); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

// pathOf returns the path at which a service has a file, or "".
func (s service) pathOf(file string) string {
	for _, v := range s.Volumes {
		if from, to, ok := strings.Cut(v, ":"); ok && path.Clean(from) == path.Clean(file) {
			return strings.TrimSuffix(to, ":ro")
		}
	}
	return ""
}

func TestPrometheusScrapesTheWorkersAndHasTheRules(t *testing.T) {
	t.Parallel()
	var config struct {
		Global        map[string]string
		RuleFiles     []string `yaml:"rule_files"`
		ScrapeConfigs []struct {
			JobName string `yaml:"job_name"`
			DNS     []struct {
				Names           []string
				Type            string
				Port            int
				RefreshInterval string `yaml:"refresh_interval"`
			} `yaml:"dns_sd_configs"`
		} `yaml:"scrape_configs"`
	}
	const name = "observability/prometheus.yml"
	readStrict(t, name, &config)
	c := readCompose(t)
	s := c.Services["prometheus"]
	if at := s.pathOf(name); at != "/etc/prometheus/prometheus.yml" {
		t.Errorf("the configuration is at %q", at)
	}
	if rules := s.pathOf("../metrics/prometheus/rules/railtoken.yml"); rules == "" || !slices.Equal(config.RuleFiles, []string{rules}) {
		t.Errorf("the rules are at %q, and Prometheus reads %q", rules, config.RuleFiles)
	}
	if len(config.ScrapeConfigs) != 1 || len(config.ScrapeConfigs[0].DNS) != 1 {
		t.Fatalf("it scrapes %+v; want one job", config.ScrapeConfigs)
	}
	target := config.ScrapeConfigs[0].DNS[0]
	if len(target.Names) != 1 || target.Type != "A" {
		t.Fatalf("it scrapes %+v; want the addresses of one name", target)
	}
	w := c.Services[target.Names[0]]
	_, port, err := net.SplitHostPort(w.value("-listen"))
	if err != nil || port != strconv.Itoa(target.Port) || !slices.Contains(w.Profiles, "observability") {
		t.Errorf("it scrapes %+v, where %q listens at port %q, %v", target, target.Names[0], port, err)
	}
}

func TestGrafanaHasThePrometheusAndTheDashboard(t *testing.T) {
	t.Parallel()
	c := readCompose(t)
	s := c.Services["grafana"]
	var sources struct {
		APIVersion  int `yaml:"apiVersion"`
		Datasources []struct {
			Name, UID, Type, Access, URL string
			IsDefault                    bool              `yaml:"isDefault"`
			JSONData                     map[string]string `yaml:"jsonData"`
		}
	}
	const sourcesFile, boardsFile, board = "observability/datasources.yml", "observability/dashboards.yml", "../metrics/prometheus/grafana/railtoken.json"
	readStrict(t, sourcesFile, &sources)
	if at := s.pathOf(sourcesFile); path.Dir(at) != "/etc/grafana/provisioning/datasources" || sources.APIVersion != 1 || len(sources.Datasources) != 1 {
		t.Fatalf("%+v at %q", sources, at)
	}
	source := sources.Datasources[0]
	check := strings.Join(c.Services["prometheus"].Healthcheck.Test, " ")
	host, port, err := net.SplitHostPort(strings.TrimPrefix(source.URL, "http://"))
	if err != nil || host != "prometheus" || !strings.Contains(check, ":"+port+"/") || source.Type != "prometheus" || !source.IsDefault {
		t.Errorf("the data source is %+v, %v; Prometheus is asked for its health by %s", source, err, check)
	}

	var boards struct {
		APIVersion int `yaml:"apiVersion"`
		Providers  []struct {
			Name, Type string
			Options    struct{ Path string }
		}
	}
	readStrict(t, boardsFile, &boards)
	if at := s.pathOf(boardsFile); path.Dir(at) != "/etc/grafana/provisioning/dashboards" || boards.APIVersion != 1 || len(boards.Providers) != 1 {
		t.Fatalf("%+v at %q", boards, at)
	}
	at := s.pathOf(board)
	if p := boards.Providers[0]; p.Type != "file" || p.Options.Path != path.Dir(at) {
		t.Errorf("the dashboard is at %q, and Grafana looks at %+v", at, p)
	}
	if home := s.Environment["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]; home != at {
		t.Errorf("the home page is %q; want %q", home, at)
	}
	if panels := readPanels(t); len(panels) < 10 {
		t.Errorf("the dashboard has %d panels", len(panels))
	}
}

// panel is what we read of a panel of the dashboard.
type panel struct {
	Title   string
	Targets []struct{ Expr string }
}

// readPanels returns the panels of the dashboard.
func readPanels(t testing.TB) []panel {
	t.Helper()
	text, err := os.ReadFile("../metrics/prometheus/grafana/railtoken.json")
	if err != nil {
		t.Fatal(err)
	}
	var board struct{ Panels []panel }
	if err := json.Unmarshal(text, &board); err != nil {
		t.Fatal(err)
	}
	return board.Panels
}
