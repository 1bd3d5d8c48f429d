package holdings

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/asynqwire"
	"github.com/railtoken/railtoken/internal/namespace"
)

// mark is what workers write beside a queue that they share with others, whose reports have names in other namespaces. It
// lives as long as a report. A worker without a namespace reads it, and writes none.
type mark struct {
	Namespace string `json:"namespace"`
	Host      string `json:"host"`
	PID       int    `json:"pid"`
}

// shares reports whether workers of another namespace may serve the same queues.
func shares(n namespace.Namespace) bool { return !n.Tasks }

// addMarks adds the marks of a worker to a pipeline.
func (r *Reporter) addMarks(ctx context.Context, p redis.Pipeliner) {
	in := namespace.Of(r.client)
	if in.IsZero() || !shares(in) {
		return
	}
	text, _ := json.Marshal(mark{in.Name, r.worker.Host, r.worker.PID}) //nolint:errchkjson // nothing in it can fail
	for queue := range r.worker.Queues {
		p.Set(ctx, asynqwire.Mark(queue), text, lifetime)
	}
}

// elsewhere returns a rival in another namespace, or nil if there is none: by its mark, or by its report if it has no
// namespace and the user of Redis may read that.
func (r *Reporter) elsewhere(ctx context.Context) (*Rival, error) {
	in := namespace.Of(r.client)
	if !shares(in) {
		return nil, nil //nolint:nilnil // there is none
	}
	queues := slices.Sorted(maps.Keys(r.worker.Queues))
	texts := make([]*redis.StringCmd, len(queues))
	_, err := r.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for n, queue := range queues {
			texts[n] = p.Get(ctx, asynqwire.Mark(queue))
		}
		return nil
	})
	if err != nil && !isAnswer(err) {
		return nil, fmt.Errorf("read the marks of queues: %w", err)
	}
	for n, queue := range queues {
		var m mark
		if texts[n].Err() != nil || json.Unmarshal([]byte(texts[n].Val()), &m) != nil || m.Namespace == in.Name {
			continue
		}
		store := "in the namespace " + strconv.Quote(m.Namespace)
		return &Rival{Report{Worker: Worker{Host: m.Host, PID: m.PID, Store: store}}, queue}, nil
	}
	outside := namespace.Outside(r.client)
	if outside == nil {
		return nil, nil //nolint:nilnil // there is none
	}
	defer outside.Close()
	all, err := Read(ctx, outside)
	if isAnswer(errors.Unwrap(err)) {
		return nil, nil //nolint:nilnil // the user may not read them
	}
	w := r.worker
	w.Store = "in the namespace " + strconv.Quote(in.Name)
	return rivalOf(r.id, w, all), err
}
