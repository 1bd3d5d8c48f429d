package lanes_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/asynqwire"
	"github.com/railtoken/railtoken/internal/lanes"
	"github.com/railtoken/railtoken/internal/testing/redistest"
)

// A notice is a hint: the script that puts a task into a queue goes on without it, or its caller would take the task for lost.
func TestNoticesFailNoScript(t *testing.T) {
	t.Parallel()
	queue := of(t, 16).Queue("orders", 3)
	for forbidden, heard := range map[string]bool{"+llen": true, "-llen": true, "-publish": false} {
		t.Run(forbidden, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			admin := server.Client(t)
			if err := admin.Do(t.Context(), "ACL", "SETUSER", "producer", "on", "nopass", "~*", "&*", "+@all", forbidden).Err(); err != nil {
				t.Fatal(err)
			}
			notices := admin.Subscribe(t.Context(), lanes.ReadyChannel(3))
			t.Cleanup(func() { _ = notices.Close() })
			if _, err := notices.Receive(t.Context()); err != nil {
				t.Fatal(err)
			}
			client := server.Client(t, func(o *redis.Options) { o.Username, o.Password = "producer", "any" })
			push := redis.NewScript(lanes.Functions + "redis.call('LPUSH', KEYS[1], 't') ready(KEYS[1], 1) return 'pushed'")
			if got, err := push.Run(t.Context(), client, []string{asynqwire.Pending(queue)}).Text(); err != nil || got != "pushed" {
				t.Errorf("%q, %v", got, err)
			}
			if heard {
				if m := redistest.Receive(t, notices.Channel(), 10*time.Second); m.Payload != queue {
					t.Errorf("a notice of %q", m.Payload)
				}
			}
		})
	}
}
