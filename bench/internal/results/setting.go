package results

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
)

// Setting is where and with what the figures were measured: without it they mean nothing.
type Setting struct {
	Command, Commit, Machine, Go, Redis string
	// Versions of the libraries and other servers that were measured, each "name version".
	Versions []string
}

// NewSetting returns the setting of this process: command started it, redis is the server's version, and the report
// names the versions of these modules. What cannot be found out is called unknown.
func NewSetting(ctx context.Context, command, redis string, modules ...string) Setting {
	s := Setting{Command: command, Commit: commit(ctx), Machine: machine(), Go: runtime.Version(), Redis: redis}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, module := range info.Deps {
			if slices.Contains(modules, module.Path) {
				s.Versions = append(s.Versions, module.Path+" "+module.Version)
			}
		}
	}
	return s
}

// commit names the revision of the working directory, and says when it has changes that are not in it.
func commit(ctx context.Context) string {
	revision, err := exec.CommandContext(ctx, "git", "rev-parse", "HEAD").Output()
	if err != nil {
		return "unknown"
	}
	name := strings.TrimSpace(string(revision))
	if changes, err := exec.CommandContext(ctx, "git", "status", "--porcelain").Output(); err != nil || len(changes) > 0 {
		name += " with uncommitted changes"
	}
	return name
}

var modelName = regexp.MustCompile(`model name\s*: *(.*)`)

func machine() string {
	model := "unknown processor"
	if info, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		if found := modelName.FindSubmatch(info); found != nil {
			model = string(found[1])
		}
	}
	return fmt.Sprintf("%s, %d cores, %s/%s", model, runtime.NumCPU(), runtime.GOOS, runtime.GOARCH)
}
