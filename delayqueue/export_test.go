package delayqueue

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// ParkedIndex is the name of the index of all parked tasks.
const ParkedIndex = parkedIndex

// UseIndex gives a Queue an index of its own, so that tests can share a Redis.
func (q *Queue) UseIndex(name string) { q.index = name }

// steps are the scripts that run on a Cluster alone.
var steps = map[string]*redis.Script{
	"note": noteStep, "stand": standStep, "forget": forgetStep, "leave": leaveStep, "join": joinStep, "look": lookStep, "discard": discardStep,
	"enter": enterStep, "scores": scoresStep, "strike": strikeStep, "ended": endedStep, "check": checkStep, "mark": markStep, "promote": promoteStep, "paused": pausedStep,
	"named": namedStep, "rename": renameStep, "hasten": hastenStep, "unplace": unplaceStep,
}

// ClusterScripts returns the names of all scripts that run on a Cluster, by their hashes.
func ClusterScripts() map[string]string {
	names := map[string]string{
		claimScript.Hash(): "claim", markScript.Hash(): "mark.lua", replayScript.Hash(): "replay", reorderScript.Hash(): "reorder",
		placeScript.Hash(): "place", dropScript.Hash(): "drop", bringBackScript.Hash(): "bring_back", lineScript.Hash(): "line", lineLeaveScript.Hash(): "line_leave",
	}
	for name, s := range steps {
		names[s.Hash()] = name
	}
	return names
}

// LoadSteps loads every step on every master, so that each is one command.
func LoadSteps(ctx context.Context, client redis.UniversalClient) error {
	for _, s := range steps {
		if err := s.Load(ctx, client).Err(); err != nil {
			return err
		}
	}
	return nil
}

// Settle waits for what the queue does in the background.
func (q *Queue) Settle() { q.pending.Wait() }
