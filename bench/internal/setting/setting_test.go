package setting_test

import (
	"runtime"
	"strings"
	"testing"

	"github.com/railtoken/railtoken/bench/internal/setting"
)

func TestASettingNamesCommandMachineAndVersions(t *testing.T) {
	t.Parallel()
	s := setting.New(t.Context(), "scripts/x.sh -quick", "7.0.1", "a/module/that/is/not/there")
	for _, part := range []string{"scripts/x.sh -quick", "redis-server 7.0.1", runtime.Version(), runtime.GOARCH} {
		if !strings.Contains(s.String(), part) {
			t.Errorf("%q lacks %q", s, part)
		}
	}
	if len(s.Versions) != 0 || s.Commit == "" {
		t.Errorf("got %+v", s)
	}
}
