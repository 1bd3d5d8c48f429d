package railtoken_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

// form is an issue template.
type form struct {
	Name, Description string
	Body              []struct {
		Type        string
		ID          string
		Validations struct{ Required bool }
		Attributes  struct {
			Label   string
			Options []string
		}
	}
}

func TestABugReportAsksForWhatItTakes(t *testing.T) {
	t.Parallel()
	paths, err := filepath.Glob(".github/ISSUE_TEMPLATE/*.yml")
	if err != nil {
		t.Fatal(err)
	}
	forms := map[string]form{}
	for _, path := range paths {
		var f form
		if err := yaml.Unmarshal([]byte(read(t, path)), &f); err != nil {
			t.Errorf("%s: %v", path, err)
		}
		forms[filepath.Base(path)] = f
	}
	if f := forms["feature.yml"]; f.Name == "" || f.Description == "" || len(f.Body) == 0 {
		t.Error("there is no template for features")
	}
	required := map[string]bool{}
	for _, question := range forms["bug.yml"].Body {
		required[question.ID] = question.Validations.Required
	}
	for _, id := range []string{"railtoken", "asynq", "redis", "topology", "locks", "order", "doctor"} {
		if !required[id] {
			t.Errorf("a report of a bug may leave out %q", id)
		}
	}
}

// CI runs the same script everywhere, so that nothing is checked only on one machine.
func TestThePublicCIOnlyCallsTheScript(t *testing.T) {
	t.Parallel()
	var workflow struct {
		Jobs map[string]struct {
			Steps []struct{ Uses, Run string }
		}
	}
	if err := yaml.Unmarshal([]byte(read(t, ".github/workflows/ci.yml")), &workflow); err != nil {
		t.Fatal(err)
	}
	var runs []string
	for _, job := range workflow.Jobs {
		for _, step := range job.Steps {
			if step.Run != "" {
				runs = append(runs, step.Run)
			} else if !strings.HasPrefix(step.Uses, "actions/") {
				t.Errorf("it uses %q of somebody else", step.Uses)
			}
		}
	}
	if !slices.Equal(runs, []string{".ci/run"}) {
		t.Errorf("it runs %q; want .ci/run alone", runs)
	}
}
