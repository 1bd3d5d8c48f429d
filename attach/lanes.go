package attach

import (
	"errors"
	"fmt"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/broker"
	"github.com/railtoken/railtoken/internal/lanes"
)

// inLanes returns the lanes of servers with these options, and why they cannot have them.
func (o Options) inLanes(client redis.UniversalClient, cfg asynq.Config) (lanes.Lanes, error) {
	l, err := lanes.On(client, o.Lanes)
	if err != nil || o.Lanes == 0 {
		if err != nil {
			err = fmt.Errorf("attach: %w", err)
		}
		return l, err
	}
	var errs []error
	for queue := range cfg.Queues {
		if err := l.Check(queue); err != nil {
			errs = append(errs, fmt.Errorf("attach: %w", err))
		}
	}
	if n := len(cfg.Queues); n > broker.MostQueues {
		errs = append(errs, fmt.Errorf("attach: there are %d queues with Lanes: a server with lanes has %d at most, because a fetch names each of "+
			"them in one byte: divide them among several servers, or use no lanes", n, broker.MostQueues))
	}
	if o.AllowUnknownAsynq {
		errs = append(errs, errors.New("attach: Lanes and AllowUnknownAsynq are both set: the tasks of a lane are found through asynq's scripts, "+
			"which must be known: leave out one of them"))
	}
	return l, errors.Join(errs...)
}
