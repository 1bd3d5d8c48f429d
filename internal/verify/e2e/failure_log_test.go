package e2e_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
)

// logIfFailed logs, when the test has failed, what Redis has of a key and of the tasks that are left in some queues,
// and the log of the workers. Defer it, so that it is called before the workers shut down.
func logIfFailed(t *testing.T, client redis.UniversalClient, db *redis.Client, log *lines, queues []string, key string) {
	t.Helper()
	if !t.Failed() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %d effects\n", time.Now().Format(time.RFC3339Nano), db.HLen(ctx, "effects").Val())
	lock := "railtoken:lock:{" + key + "}"
	for _, name := range []string{lock, lock + ":notify", lock + ":fence"} {
		fmt.Fprintf(&b, "%s is %q for %v\n", name, client.Get(ctx, name).Val(), client.PTTL(ctx, name).Val())
	}
	waiters := client.ZRange(ctx, "railtoken:waiters:{"+key+"}", 0, -1).Val()
	for _, queue := range queues {
		prefix := "asynq:{" + queue + "}:"
		hashes := client.Keys(ctx, prefix+"t:*").Val()
		fmt.Fprintf(&b, "queue %s has %d tasks\n", queue, len(hashes))
		for _, hash := range hashes {
			id := strings.TrimPrefix(hash, prefix+"t:")
			fields := client.HGetAll(ctx, hash).Val()
			delete(fields, "msg")
			fmt.Fprintf(&b, "  %s: %v, among the waiters %d", id, fields, slices.IndexFunc(waiters, func(entry string) bool {
				return strings.HasSuffix(entry, id)
			}))
			for _, list := range []string{"pending", "active"} {
				if at, err := client.LPos(ctx, prefix+list, id, redis.LPosArgs{}).Result(); err == nil {
					fmt.Fprintf(&b, ", %s[%d]", list, at)
				}
			}
			for _, set := range []string{"lease", "retry", "scheduled", "archived"} {
				if at, err := client.ZScore(ctx, prefix+set, id).Result(); err == nil {
					fmt.Fprintf(&b, ", %s in %v", set, time.Until(time.Unix(int64(at), 0)))
				}
			}
			if info, err := asynq.NewInspectorFromRedisClient(client).GetTaskInfo(queue, id); err == nil {
				fmt.Fprintf(&b, ", retried %d of %d, last error %q", info.Retried, info.MaxRetry, info.LastErr)
			}
			b.WriteByte('\n')
		}
	}
	t.Logf("%slog of the workers:\n%s", b.String(), log)
}
