package intake

import (
	"context"
	"sync"

	"github.com/redis/go-redis/v9"
)

// leaders is how many pipelines are under way at a time: one is answered while the next one is sent.
const leaders = 2

// pipeline sends the calls of several callers in one round trip: those that come while others are under way. It is safe
// for concurrent use.
type pipeline struct {
	client redis.UniversalClient

	mu      sync.Mutex
	waiting []*call
	leaders int
}

// call is a command that waits to be sent.
type call struct {
	cmd  redis.Cmder
	lead chan bool // true when its caller is to send it, false when it was answered
}

// do sends a command, and returns when it is answered.
func (p *pipeline) do(ctx context.Context, cmd redis.Cmder) {
	own := &call{cmd: cmd}
	p.mu.Lock()
	if p.leaders < leaders {
		p.leaders++
		p.mu.Unlock()
		p.send(ctx, own)
		return
	}
	own.lead = make(chan bool, 1)
	p.waiting = append(p.waiting, own)
	p.mu.Unlock()
	if <-own.lead {
		p.send(ctx, own)
	}
}

// send sends a call and all that wait, and has the first of those that come meanwhile send the next ones.
func (p *pipeline) send(ctx context.Context, own *call) {
	p.mu.Lock()
	others := p.waiting
	p.waiting = nil
	p.mu.Unlock()
	if len(others) == 0 {
		_ = p.client.Process(ctx, own.cmd)
	} else {
		pipe := p.client.Pipeline()
		_ = pipe.Process(ctx, own.cmd)
		for _, c := range others {
			_ = pipe.Process(ctx, c.cmd)
		}
		_, _ = pipe.Exec(context.WithoutCancel(ctx)) // each command has its own error
	}
	p.mu.Lock()
	if len(p.waiting) > 0 {
		next := p.waiting[0]
		p.waiting = p.waiting[1:]
		next.lead <- true
	} else {
		p.leaders--
	}
	p.mu.Unlock()
	for _, c := range others {
		c.lead <- false
	}
}
