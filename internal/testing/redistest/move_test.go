package redistest_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/rediswire"
	"github.com/railtoken/railtoken/internal/testing/redistest"
)

func TestSlotOnItsWayAnswersForWhatItHas(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 2)
	ctx := t.Context()
	client := c.Client(t)
	all := []string{"{foo}1", "{foo}2", "{foo}3", "{foo}4"}
	for _, key := range all {
		if err := client.Set(ctx, key, key, 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	move := c.BeginMove(t, rediswire.Slot("foo"), c.Nodes()[0])
	if move.From() != c.Nodes()[1] || move.To() != c.Nodes()[0] {
		t.Fatalf("it goes from %s to %s", move.From().Addr(), move.To().Addr())
	}
	source := move.From().Client(t, func(opt *redis.Options) { opt.MaxRetries = -1 })
	wants := func(when, prefix string, err error) {
		t.Helper()
		if err == nil && prefix != "" || err != nil && (prefix == "" || !strings.HasPrefix(err.Error(), prefix)) {
			t.Errorf("%s: %v; want %q", when, err, prefix)
		}
	}
	wants("all keys there", "", source.MGet(ctx, all...).Err())
	move.Keys(t, "{foo}1", "{foo}missing")
	wants("some keys there", "TRYAGAIN", source.MGet(ctx, all...).Err())
	wants("a key that is there", "", source.Get(ctx, "{foo}2").Err())
	wants("a key that is not", "ASK", source.Get(ctx, "{foo}1").Err())
	if moved := move.Some(t, 2); moved != 2 {
		t.Errorf("%d keys were moved; want 2", moved)
	}
	if moved := move.Some(t, 5); moved != 1 {
		t.Errorf("%d keys were moved; want the last one", moved)
	}
	wants("no key there", "ASK", source.MGet(ctx, all...).Err())
	move.Finish(t)
	wants("another's slot", "MOVED", source.MGet(ctx, all...).Err())
	wants("over the client", "", client.MGet(ctx, all...).Err())
}

func TestSlotGivenUpIsServedByNeither(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 2)
	ctx := t.Context()
	client := c.Client(t)
	if err := client.Set(ctx, "foo", "1", 0).Err(); err != nil {
		t.Fatal(err)
	}
	move := c.BeginMove(t, rediswire.Slot("foo"), c.Nodes()[0])
	move.GiveUp(t)
	for i, other := range []*redistest.Server{move.To(), move.From()} {
		err := []*redistest.Server{move.From(), move.To()}[i].Client(t).Get(ctx, "foo").Err()
		if want := fmt.Sprintf("MOVED %d %s", rediswire.Slot("foo"), other.Addr()); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
	move.Finish(t)
	if got := client.Get(ctx, "foo").Val(); got != "1" {
		t.Errorf("afterwards the key reads %q", got)
	}
}
