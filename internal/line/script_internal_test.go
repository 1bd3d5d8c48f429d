package line

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/pipeline"
	"github.com/railtoken/railtoken/internal/rediswire"
	"github.com/railtoken/railtoken/internal/testing/redistest"
)

// While a slot moves, go-redis sends a whole pipeline again when its first call is refused, and besides each of its
// calls that another node has.
func TestACallOfAPipelineIsSentToOneNode(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 2)
	client := cluster.Client(t)
	q, err := New(client, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = q.Close() })
	script := redis.NewScript(`return redis.call('INCR', KEYS[1])`)
	err = client.ForEachMaster(t.Context(), func(ctx context.Context,
		node *redis.Client,
	) error {
		return script.Load(ctx, node).Err()
	})
	if err != nil {
		t.Fatal(err)
	}
	names := []string{"{a}:stays", "{a}:moves", "{a}:counted", "{a}:moves too"}
	for _, name := range names {
		if err := client.Set(t.Context(), name, 0, 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	slot := rediswire.Slot(names[0])
	to := cluster.Nodes()[0]
	if owner, err := client.MasterForKey(t.Context(), names[0]); err != nil || owner.Options().Addr == to.Addr() {
		to = cluster.Nodes()[1]
	}
	move := cluster.BeginMove(t, slot, to)
	move.Keys(t, names[1:]...)
	replies := q.pipeline(t.Context(), []pipeline.ScriptCall{{Script: script, Keys: names[:2], Args: nil}, {Script: script, Keys: names[2:], Args: nil}})
	if err := replies[0].Err(); !redis.IsTryAgainError(err) {
		t.Errorf("of keys on both nodes: %v", err)
	}
	move.Finish(t)
	if n, err := client.Get(t.Context(), names[2]).Int(); err != nil || n != 1 {
		t.Errorf("the other call was made %d times, %v", n, err)
	}
}
