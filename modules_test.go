package railtoken_test

import (
	"os/exec"
	"strings"
	"testing"
)

// notInCore are parts of the paths of modules that users of the core must not get: telemetry, command lines, web servers and
// consoles, and the stores of the other lock backends. They belong in modules of their own.
var notInCore = []string{
	"go.opentelemetry.io/", "github.com/prometheus/", "github.com/spf13/cobra", "github.com/spf13/pflag", "github.com/urfave/cli",
	"github.com/alecthomas/kong", "github.com/gin-gonic/", "github.com/go-chi/", "github.com/labstack/", "github.com/gofiber/",
	"github.com/gorilla/", "github.com/charmbracelet/", "go.etcd.io/", "google.golang.org/grpc", "github.com/jackc/", "github.com/lib/pq",
}

func TestTheCoreNeedsNoForeignModules(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-m", "all")
	cmd.Env = append(cmd.Environ(), "GOWORK=off", "GOFLAGS=-mod=readonly")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list -m all: %v", err)
	}
	modules := strings.Fields(string(out))
	if len(modules) < 10 {
		t.Fatalf("go list -m all names only %q", modules)
	}
	for _, module := range modules {
		for _, part := range notInCore {
			if strings.HasPrefix(module+"/", part) || strings.HasPrefix(module, part) {
				t.Errorf("the core needs %s: it belongs in a module of its own", module)
			}
		}
	}
}
