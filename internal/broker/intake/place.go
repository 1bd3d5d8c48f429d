package intake

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/lanes"
	"github.com/railtoken/railtoken/internal/pipeline"
)

// place is queues whose keys are on one node at any time: all of the server's on one Redis or in one lane, and each one alone on a
// Redis Cluster. A script reaches no others.
type place struct {
	in         *Intake
	number     int      // in the turns of the server; negative if it has none
	colocated  bool     // the locks of its tasks are there, too
	tag        string   // of the keys of its lane, "" if it is in none
	queues     []string // in the order of their priorities
	positions  []int    // of the queues among those of the server
	keys       []string // of the queues
	server     *pipeline.Server
	ackScripts sync.Map     // by asynq's text
	recalls    atomic.Int64 // of fetches with acknowledgements that are under way

	recalling chan struct{}               // has a value while the last Fetch is recalled, or one is under way
	lost      func(context.Context) error // recalls the last Fetch, unless it was answered
	recalled  time.Time                   // when that was last tried
}

// newPlace returns the place of some queues, none of which is the server's if it has no positions.
func (in *Intake) newPlace(queues []string, positions []int, colocated bool) *place {
	sending := pipeline.Options{Leaders: leaders, Timeout: callTimeout, Least: min(in.slots.most/leaders, least)}
	if colocated && !in.oneNode {
		sending.Leaders, sending.Crowd = 1, &in.crowd
	}
	switch in.client.(type) {
	case *redis.Client, *redis.ClusterClient:
	default: // it may not send what is pipelined to one node
		sending = pipeline.Options{}
	}
	return &place{
		in: in, number: -1, colocated: colocated, queues: queues, positions: positions, keys: keysOf(queues),
		server: pipeline.New(in.client, sending), recalling: make(chan struct{}, 1),
	}
}

// placesOf returns the places of the server's queues. If there are lanes, each has a place, and so has each queue itself, where tasks
// are that were enqueued without lanes; these places take turns.
func (in *Intake) placesOf(l lanes.Lanes, strict bool) map[string]*place {
	all := map[string]*place{}
	every := make([]int, len(in.order.names))
	for i := range every {
		every[i] = i
	}
	if in.oneNode {
		p := in.newPlace(in.order.names, every, true)
		for _, queue := range in.order.names {
			all[queue] = p
		}
		return all
	}
	var turning []*place
	for _, lane := range reversed(l.Count()) {
		queues := make([]string, len(every))
		for i, queue := range in.order.names {
			queues[i] = l.Queue(queue, lane)
		}
		p := in.newPlace(queues, every, true)
		p.tag = l.Tag(lane)
		turning = append(turning, p)
		for _, queue := range queues {
			all[queue] = p
		}
	}
	for i, queue := range in.order.names {
		p := in.newPlace(in.order.names[i:i+1], every[i:i+1], false)
		turning = append(turning, p)
		all[queue] = p
	}
	if l.Count() > 0 {
		in.turning = newTurning(turning, in.slots.most, strict)
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
		p = in.newPlace([]string{queue}, nil, in.oneNode)
		in.others[queue] = p
	}
	return p
}

// reaches reports whether the locks of a task are in the place, by its keys as they are recorded.
func (p *place) reaches(recorded string) bool {
	for key := range strings.FieldsSeq(recorded) {
		if tag, _, _ := strings.Cut(key, "}"); p.tag != "" && tag != p.tag {
			return false
		}
	}
	return true
}
