package redistest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
)

// A process is a redis-server that has been started.
type process struct {
	cmd    *exec.Cmd
	exited chan struct{} // closed when the process is gone and reaped
}

func logFile(dir string) string { return filepath.Join(dir, "redis.log") }

// startProcess starts bin in dir. Its output goes to a file, not through a pipe, so that no goroutine depends on it.
func startProcess(bin, dir string, args []string) (*process, error) {
	log, err := os.OpenFile(logFile(dir), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("redistest: %w", err)
	}
	defer log.Close()

	cmd := exec.Command(bin, args...) //nolint:noctx // it ends by Stop or Kill
	p := &process{cmd: cmd, exited: make(chan struct{})}
	p.cmd.Dir = dir
	p.cmd.Stdout = log
	p.cmd.Stderr = log
	p.cmd.SysProcAttr = dieWithParent()

	started := make(chan error)
	go func() {
		// The death signal is sent when the thread that forked ends, not when the process does: keep that thread.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := p.cmd.Start()
		started <- err
		if err == nil {
			_ = p.cmd.Wait()
			close(p.exited)
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("redistest: %w", err)
	}
	return p, nil
}

// kill ends the process at once and returns when it is gone.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.exited
}
