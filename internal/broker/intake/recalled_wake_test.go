package intake_test

import (
	"testing"
	"time"

	"github.com/railtoken/railtoken/internal/broker/intake"
	"github.com/railtoken/railtoken/internal/testing/redistest"
)

// The reply to the fetch of a task that was woken is lost. If the task does not take its key, its run must pass the wake on.
func TestARecalledTaskIsStillWoken(t *testing.T) {
	t.Parallel()
	for name, woken := range map[string]bool{"woken": true, "brought back by its timer": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			admin, client := server.Client(t), server.Client(t)
			enqueue(t, admin, "default", 1)
			hash := "asynq:{default}:t:default0"
			admin.HSet(t.Context(), hash, "railtoken:wait", "a record")
			if woken {
				admin.HSet(t.Context(), hash, "railtoken:woken", time.Now().UnixMicro())
			}
			network := newOutage()
			client.AddHook(redistest.Hook(network.call))
			in := intake.New(client, intake.Options{Slots: 1})
			network.loseAReply()
			if _, err := in.Fetch(t.Context(), "default"); err == nil {
				t.Fatal("the reply was not lost")
			}
			network.mend()
			redistest.Receive(t, in.Arrived(), patience)
			task, ok := in.Take()
			if !ok || task.Woken != woken || task.Wait != "a record" {
				t.Errorf("the recall has brought %+v, %v; want a task that was woken: %v", task, ok, woken)
			}
		})
	}
}
