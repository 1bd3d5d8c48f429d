package line

import "time"

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
