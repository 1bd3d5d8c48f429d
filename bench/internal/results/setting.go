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

// NewSetting returns the setting of this process: command started it, and the report names the versions of these
// modules. What cannot be found out is called unknown.
func NewSetting(ctx context.Context, command string, modules ...string) Setting {
	s := Setting{Command: command, Commit: commit(ctx), Machine: machine(), Go: runtime.Version(), Redis: "unknown"}
	if text, err := exec.CommandContext(ctx, "redis-server", "--version").Output(); err == nil {
		if found := version.FindSubmatch(text); found != nil {
			s.Redis = string(found[1])
		}
	}
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
	name, err := exec.CommandContext(ctx, "git", "describe", "--always", "--exclude=*", "--abbrev=40",
		"--dirty= with uncommitted changes").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(name))
}

var (
	modelName = regexp.MustCompile(`model name\s*: *(.*)`)
	version   = regexp.MustCompile(`v=(\S+)`)
)

func machine() string {
	model := "unknown processor"
	if info, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		if found := modelName.FindSubmatch(info); found != nil {
			model = string(found[1])
		}
	}
	return fmt.Sprintf("%s, %d cores, %s/%s", model, runtime.NumCPU(), runtime.GOOS, runtime.GOARCH)
}
