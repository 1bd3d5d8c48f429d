package measure

import "os/exec"

// busyLoop keeps a processor busy until the process that has started it is gone.
const busyLoop = `while kill -0 $PPID; do i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; done`

// KeepBusy has another process keep a processor busy until stop is called.
func KeepBusy() (stop func(), err error) {
	cmd := exec.Command("sh", "-c", busyLoop) //nolint:noctx // stop ends it
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}, nil
}
