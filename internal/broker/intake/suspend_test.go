//go:build suspend

package intake_test

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/broker/intake"
	"github.com/railtoken/railtoken/internal/testing/childtest"
	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/internal/testing/suspendtest"
)

const (
	// suspendedOn names the Redis of a child whose machine is suspended.
	suspendedOn  = "INTAKE_SUSPENDED_ON"
	tasksInChild = 4
)

func init() {
	addr := os.Getenv(suspendedOn)
	if addr == "" {
		return
	}
	in := intake.New(redis.NewClient(&redis.Options{Addr: addr}), intake.Options{Slots: tasksInChild})
	suspendtest.Serve(func(command []string) string {
		switch command[0] {
		case "fetch": // and keep the tasks in memory
			_, err := in.Fetch(context.Background(), "default")
			runtime.StopMonotonic()
			return fmt.Sprint(err)
		default: // take them after the suspension, before they go back
			runtime.ContinueMonotonic()
			n := 0
			for _, ok := in.Take(); ok; _, ok = in.Take() {
				n++
			}
			return fmt.Sprint(n)
		}
	})
	os.Exit(0)
}

// While its machine is suspended asynq's leases on the tasks in its memory end, and another server runs them.
func TestASuspendedServerRunsNoTaskFromMemory(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	admin := server.Client(t)
	enqueue(t, admin, "default", tasksInChild)
	child := childtest.Start(t, suspendedOn+"="+server.Addr())
	if answer := suspendtest.Ask(t, child, "fetch"); answer != "<nil>" {
		t.Fatal(answer)
	}
	suspendtest.Stop(t, child, 16*time.Second, func() {
		for i := range tasksInChild { // what another minute would do
			admin.ZAdd(t.Context(), "asynq:{default}:lease", redis.Z{Score: 1, Member: fmt.Sprint("default", i)})
		}
		var ran sync.WaitGroup
		ran.Add(tasksInChild)
		rival := asynq.NewServerFromRedisClient(admin, asynq.Config{
			LogLevel: asynq.FatalLevel, RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return 0 },
		})
		if err := rival.Start(asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
			ran.Done()
			return nil
		})); err != nil {
			t.Fatal(err)
		}
		ran.Wait()
		rival.Shutdown()
	})
	if n := suspendtest.Ask(t, child, "take"); n != "0" {
		t.Errorf("%s of %d tasks run again on the server that was suspended", n, tasksInChild)
	}
}
