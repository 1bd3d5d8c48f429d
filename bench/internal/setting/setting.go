// Package setting says where and with what the figures of a benchmark were measured: without that they mean nothing.
package setting

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
)

// Setting is where and with what the figures were measured.
type Setting struct {
	Command, Commit, Machine, Go, Redis string
	// Versions of the libraries that were measured, each "path version".
	Versions []string
}

// New returns the setting of this process. command is how it was started, redis the version of the server, and modules the libraries
// to name the versions of. What cannot be found out is called unknown.
func New(ctx context.Context, command, redis string, modules ...string) Setting {
	return Setting{Command: command, Commit: commit(ctx), Machine: machine(), Go: runtime.Version(), Redis: redis, Versions: versions(modules)}
}

// String returns four lines.
func (s Setting) String() string {
	return fmt.Sprintf("command  %s\ncommit   %s\nmachine  %s\nversions %s, redis-server %s, %s\n",
		s.Command, s.Commit, s.Machine, s.Go, s.Redis, strings.Join(s.Versions, ", "))
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

func machine() string {
	model := "unknown processor"
	if info, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(info)) {
			if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
				model = strings.TrimSpace(value)
				break
			}
		}
	}
	return fmt.Sprintf("%s, %d cores, %s/%s", model, runtime.NumCPU(), runtime.GOOS, runtime.GOARCH)
}

func versions(modules []string) []string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return nil
	}
	var found []string
	for _, module := range info.Deps {
		if slices.Contains(modules, module.Path) {
			found = append(found, module.Path+" "+module.Version)
		}
	}
	return found
}
