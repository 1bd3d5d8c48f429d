package intake

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/pipeline"
)

// place is queues whose keys are on one node at any time: all of the server's on one Redis, and each one alone on a Redis
// Cluster. A script reaches no others.
type place struct {
	in         *Intake
	queues     []string // in the order of their priorities
	keys       []string // of the queues
	server     *pipeline.Server
	ackScripts sync.Map     // by asynq's text
	recalls    atomic.Int64 // of fetches with acknowledgements that are under way

	recalling chan struct{}               // has a value while the last Fetch is recalled, or one is under way
	lost      func(context.Context) error // recalls the last Fetch, unless it was answered
	recalled  time.Time                   // when that was last tried
}

// newPlace returns the place of some queues.
func (in *Intake) newPlace(queues []string) *place {
	sending := pipeline.Options{Leaders: leaders, Timeout: callTimeout, Least: min(in.slots.most/leaders, least)}
	switch in.client.(type) {
	case *redis.Client, *redis.ClusterClient:
	default: // it may not send what is pipelined to one node
		sending = pipeline.Options{}
	}
	return &place{
		in: in, queues: queues, keys: keysOf(queues), server: pipeline.New(in.client, sending), recalling: make(chan struct{}, 1),
	}
}

// placesOf returns the places of the server's queues.
func (in *Intake) placesOf() map[string]*place {
	all := map[string]*place{}
	if in.oneNode {
		p := in.newPlace(in.order.names)
		for _, queue := range in.order.names {
			all[queue] = p
		}
		return all
	}
	for i, queue := range in.order.names {
		all[queue] = in.newPlace(in.order.names[i : i+1])
	}
	return all
}

// place returns that of a queue.
func (in *Intake) place(queue string) *place {
	if p := in.places[queue]; p != nil {
		return p
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	p := in.others[queue]
	if p == nil {
		if in.others == nil {
			in.others = map[string]*place{}
		}
		p = in.newPlace([]string{queue})
		in.others[queue] = p
	}
	return p
}
