package line

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/internal/broker"
	"github.com/railtoken/railtoken/internal/lanes"
	"github.com/railtoken/railtoken/internal/testing/asynqtest"
	"github.com/railtoken/railtoken/internal/testing/redistest"
)

func TestAnUnknownAsynqEnqueuesPlainlyOrNotAtAll(t *testing.T) {
	t.Parallel()
	q, err := New(redistest.Start(t).Client(t), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	for _, o := range []EnqueueOptions{
		{}, {Keys: []string{"k"}}, {AtOnce: true}, {Locks: []string{"l"}}, {WaitFor: "k"}, {InOrder: "k"},
	} {
		a := &enqueuing{EnqueueOptions: o}
		cmd := q.answer(context.WithValue(t.Context(), enqueuingKey{}, a), broker.Enqueuing{})
		plain := !o.AtOnce && len(o.Locks) == 0 && o.WaitFor == "" && o.InOrder == ""
		if plain != (cmd == nil) || plain != (a.err == nil) || !plain && !errors.Is(cmd.Err(), ErrForeign) {
			t.Errorf("%+v: %v, %v", o, cmd, a.err)
		}
	}
}

// With an asynq that is not recognised a task would be enqueued and never join.
func TestAnUnknownAsynqEnqueuesNothingInOrder(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t).Client(t)
	q, err := New(client, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	q.tasks = asynq.NewClientFromRedisClient(asynqtest.OtherVersion{
		UniversalClient: broker.NewEnqueuer(client, q.answer), Changed: func(string, []string) bool { return true },
	})
	for name, opts := range map[string][]asynq.Option{
		"at once": nil, "later": {asynq.ProcessIn(time.Hour)}, "unique": {asynq.Unique(time.Hour)}, "group": {asynq.Group("g")},
	} {
		info, err := q.EnqueueInOrder(t.Context(), "k", "test", nil, nil, append(opts, asynq.TaskID(name))...)
		if info != nil || !errors.Is(err, broker.ErrAsynq) || !strings.Contains(err.Error(), "use asynq v0.26.0") {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
	if left := client.Keys(t.Context(), "*:t:*").Val(); len(left) > 0 {
		t.Errorf("%v were enqueued all the same", left)
	}
}

// With lanes, keys say into which queue a task goes. asynq must be known for that.
func TestATaskGoesIntoTheLaneOfItsKeys(t *testing.T) {
	t.Parallel()
	m, _ := redistest.Virtual(t)
	l, err := lanes.New(16)
	if err != nil {
		t.Fatal(err)
	}
	q, err := New(redistest.VirtualCluster(t, m), Options{Lanes: l})
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	home := l.Queue("orders", l.Of("k"))
	for name, tt := range map[string]struct {
		keys []string
		sent broker.Enqueuing
		into string
		err  error
	}{
		"no keys":          {nil, broker.Enqueuing{Script: "enqueue", Queue: "orders"}, "", nil},
		"elsewhere":        {[]string{"k"}, broker.Enqueuing{Script: "enqueue", Queue: "orders"}, home, nil},
		"there":            {[]string{"k"}, broker.Enqueuing{Script: "enqueue", Queue: home}, "", nil},
		"a group":          {[]string{"k"}, broker.Enqueuing{Script: "addToGroup", Queue: home}, "orders", nil},
		"an unknown asynq": {[]string{"k"}, broker.Enqueuing{Queue: "orders"}, "", ErrForeign},
	} {
		a := &enqueuing{EnqueueOptions: EnqueueOptions{Keys: tt.keys}}
		away, err := q.reroutes(a, tt.sent)
		if a.into != tt.into || away != (tt.into != "") || !errors.Is(err, tt.err) {
			t.Errorf("%s: into %q, %t, %v; want %q, %v", name, a.into, away, err, tt.into, tt.err)
		}
	}
}
