package tasks

import (
	"context"
	"crypto/sha256"
	"os/exec"
	"sync"
	"time"
)

// stepTime is what a step of a computation takes at most, so that the end of a run breaks it off soon.
const stepTime = 100 * time.Microsecond

// steps returns how many hashes take stepTime while nothing else runs.
var steps = sync.OnceValue(func() int {
	const hashes, tries = 2000, 5
	best := time.Hour
	for range tries {
		began := time.Now()
		hash(hashes)
		best = min(best, time.Since(began))
	}
	return max(int(hashes*stepTime/best), 1)
})

func hash(n int) {
	var block [256]byte
	for range n {
		sum := sha256.Sum256(block[:])
		copy(block[:], sum[:])
	}
}

// compute uses as much of a processor as takes d while nothing else runs. The end of ctx breaks it off.
func compute(ctx context.Context, d time.Duration) error {
	for left := d; left > 0; left -= stepTime {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		hash(steps())
	}
	return nil
}

// busyLoop keeps a processor busy until the process that has started it is gone.
const busyLoop = `while kill -0 $PPID; do i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; done`

// keepBusy has another process keep a processor busy until stop is called.
func keepBusy() (stop func(), err error) {
	cmd := exec.Command("sh", "-c", busyLoop) //nolint:noctx // stop ends it
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}, nil
}
