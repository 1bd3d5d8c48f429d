package delayqueue_test

import (
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/internal/redistest"
)

// wrapped is a client of a user's own around go-redis's: the Queue works in steps.
type wrapped struct{ *redis.Client }

// The user may not call one of the commands that asynq does not need: Redis undoes nothing of a script that fails.
func TestAParkThatFailsHalfwayLosesNothing(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	for _, denied := range []string{"hmget", "time", "zcard", "zrank", "zremrangebyscore", "pttl"} {
		t.Run(denied, func(t *testing.T) {
			t.Parallel()
			r := soloOn(t, server.Client(t))
			user := server.Client(t, server.User(t, denied, "~*", "&*", "+@all", "-"+denied))
			for name, client := range map[string]redis.UniversalClient{"at once": user, "in steps": wrapped{user}} {
				task := r.begin(r.delayed(denied + name))
				_, _ = r.on(client).Park(t.Context(), task, denied, delayqueue.ParkOptions{Look: time.Minute})
				safe := [][]string{{"default retry"}, {"default active", "default lease"}} // and asynq's recoverer finds the latter
				if lists := r.everywhere(task.ID); !slices.ContainsFunc(safe, func(s []string) bool { return slices.Equal(s, lists) }) {
					t.Errorf("%s: it is in %v", name, lists)
				}
			}
		})
	}
}
