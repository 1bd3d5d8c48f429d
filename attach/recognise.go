package attach

import (
	"errors"
	"fmt"

	"github.com/railtoken/railtoken/internal/broker"
)

// recognise returns an error if asynq is not recognised, unless the options allow that; then it logs a warning.
func (o Options) recognise(recognised func() error) error {
	err := recognised()
	switch {
	case err == nil:
		return nil
	case o.AllowUnknownAsynq && (o.OnArchived != nil || o.OnCompleted != nil):
		return fmt.Errorf("attach: OnArchived and OnCompleted cannot see how such an asynq ends tasks: remove them, or use asynq %s: %w",
			broker.Versions, err)
	case o.AllowUnknownAsynq:
		o.Logger.Warn("asynq is not recognised; tasks wait in plain mode, where one on its last attempt may be archived without having run",
			"error", err)
		return nil
	case !errors.Is(err, broker.ErrAsynq):
		return fmt.Errorf("attach: %w: try again on a machine that is less busy", err)
	default:
		return fmt.Errorf("attach: %w: use asynq %s, or set AllowUnknownAsynq to let tasks wait without being woken",
			err, broker.Versions)
	}
}
