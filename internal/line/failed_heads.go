package line

import (
	"context"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

// headLook is when a head is looked at again that has failed and still waits for its retry.
const headLook = 300 * time.Millisecond

// failedHeads are the heads that have failed and keep their positions, as the last look of this process has found them. One
// that is still in asynq's retry set, with the same time, is the head as before, and that is asked of all heads of a queue in
// one command.
type failedHeads map[string]failedHead

type failedHead struct {
	task  Task
	again time.Time
}

// note notes the head of a key, or that it has not failed.
func (h failedHeads) note(key string, front Front) {
	if front.Failed {
		h[key] = failedHead{front.Next[0], front.Again}
	} else {
		delete(h, key)
	}
}

// stillFailed divides keys into those whose head still waits for its retry, and the others.
func (e *Engine) stillFailed(ctx context.Context, all []string) (failed, others []string) {
	byQueue := map[string][]string{}
	for _, key := range all {
		if head, ok := e.failed[key]; ok {
			byQueue[head.task.Queue] = append(byQueue[head.task.Queue], key)
		} else {
			others = append(others, key)
		}
	}
	if len(byQueue) == 0 {
		return nil, others
	}
	again := map[string]*redis.FloatSliceCmd{}
	_, _ = e.client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for queue, keys := range byQueue {
			ids := make([]string, len(keys))
			for i, key := range keys {
				ids[i] = e.failed[key].task.ID
			}
			again[queue] = pipe.ZMScore(ctx, Task{Queue: queue}.Prefix()+"retry", ids...)
		}
		return nil
	}) // without an answer, they are looked at one by one
	for queue, keys := range byQueue {
		for i, key := range keys {
			if due := again[queue].Val(); i < len(due) && int64(due[i]) == e.failed[key].again.Unix() {
				failed = append(failed, key)
			} else {
				others = append(others, key)
			}
		}
	}
	return failed, others
}

// lookSoon has keys looked at again in headLook, sooner than owedAfter. now is the time of the server (ms).
func (e *Engine) lookSoon(ctx context.Context, now int64, all []string) error {
	if len(all) == 0 {
		return nil
	}
	at := make([]redis.Z, len(all))
	for i, key := range all {
		at[i] = redis.Z{Score: float64(now + headLook.Milliseconds()), Member: WaitersKey(key)}
	}
	for some := range slices.Chunk(at, owedMost) {
		if err := e.client.ZAddArgs(ctx, e.owed(), redis.ZAddArgs{XX: true, LT: true, Members: some}).Err(); err != nil {
			return err
		}
	}
	return nil
}
