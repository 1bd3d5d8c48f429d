package delayqueue

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// ParkedIndex is the name of the index of all parked tasks.
const ParkedIndex = parkedIndex

// UseIndex gives a Queue an index of its own, so that tests can share a Redis.
func (q *Queue) UseIndex(name string) { q.index = name }

// LoadSteps loads every step on every master, so that each is one command.
func LoadSteps(ctx context.Context, client redis.UniversalClient) error {
	for _, s := range []*redis.Script{
		noteStep, standStep, forgetStep, leaveStep, joinStep, lookStep, discardStep, enterStep, scoresStep, strikeStep, endedStep, checkStep,
		markStep, promoteStep, namedStep, whoseStep, renameStep,
	} {
		if err := s.Load(ctx, client).Err(); err != nil {
			return err
		}
	}
	return nil
}
