package traces

import (
	"context"
	"errors"
	"net"
	"sync"

	"github.com/redis/go-redis/v9"
)

// errDead is what a killed worker hears of its commands.
var errDead = errors.New("this worker was killed")

// tap is on the connections of a worker. It can kill the worker: then nothing is sent any more.
type tap struct {
	dead chan struct{}
	once sync.Once
}

func newTap() *tap { return &tap{dead: make(chan struct{})} }

func (t *tap) kill() { t.once.Do(func() { close(t.dead) }) }

func (t *tap) isDead() bool {
	select {
	case <-t.dead:
		return true
	default:
		return false
	}
}

func (*tap) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (t *tap) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if t.isDead() {
			cmd.SetErr(errDead)
			return errDead
		}
		return next(ctx, cmd)
	}
}

func (t *tap) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if t.isDead() {
			for _, cmd := range cmds {
				cmd.SetErr(errDead)
			}
			return errDead
		}
		return next(ctx, cmds)
	}
}
