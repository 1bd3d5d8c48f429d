package worker

import (
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/taskrun"
)

// openLocks makes the Locker. It has connections of its own, so that asynq's commands do not delay a renewal. They give
// up quickly on a server that cannot be reached, because each caller tries again or goes on without that server.
func (w *Worker) openLocks() (err error) {
	if w.cfg.Locker != nil {
		w.locker = taskrun.On(w.cfg.Locker)
		return nil
	}
	at := w.lockAt()
	if at.isRedlock() {
		for _, addr := range at.Nodes {
			node := at
			node.Addr, node.Nodes = addr, nil
			client, _, err := node.client(func(o *redis.UniversalOptions) {
				o.DialTimeout, o.DialerRetries, o.MaxRetries = lockDialTimeout, 1, -1
			})
			if err != nil {
				return err
			}
			w.lockTest = append(w.lockTest, client)
		}
		w.locker, err = taskrun.OnNodes(at.nodes(), w.cfg.LockGuard, at.Namespace, w.cfg.MaxHold)
		return err
	}
	w.lockConn, w.made.locks, err = at.client(func(o *redis.UniversalOptions) {
		o.DialTimeout, o.DialerRetries, o.MaxRetries = lockDialTimeout, 1, 1
	})
	if err != nil {
		w.lockConn = nil
		return err
	}
	w.locker, err = taskrun.OnClient(w.lockConn, w.cfg.MaxHold, w.cfg.AllowEviction, w.lockLanes())
	if !w.cfg.LockRedis.isZero() {
		w.locker.RedisKeys = nil // another Redis than that of the tasks
	}
	return err
}

// lockLanes returns how many lanes the locks have: those of the tasks, unless the locks are on another Redis.
func (w *Worker) lockLanes() int {
	if w.cfg.LockRedis.isZero() {
		return w.cfg.Redis.Lanes
	}
	return 0
}

// lockDialTimeout is the maximum time to establish one connection for the locks.
const lockDialTimeout = 2 * time.Second

// lockAt returns the Redis of the locks.
func (w *Worker) lockAt() Redis {
	if w.cfg.LockRedis.isZero() {
		return w.cfg.Redis
	}
	return w.cfg.LockRedis.inherits(w.cfg.Redis)
}
