package redistest_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/railtoken/railtoken/internal/testing/redistest"
)

func TestClusterServesEverySlot(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3)
	if got := c.Addrs(); len(got) != 3 || len(slices.Compact(slices.Sorted(slices.Values(got)))) != 3 {
		t.Fatalf("Addrs is %v, want three different ones", got)
	}

	ctx := t.Context()
	client := c.Client(t)
	for i := range 100 {
		if err := client.Set(ctx, fmt.Sprint("key", i), i, 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	for _, node := range c.Nodes() {
		n, err := node.Client(t).DBSize(ctx).Result()
		if err != nil || n == 0 {
			t.Errorf("%s holds %d keys, %v; want its share", node.Addr(), n, err)
		}
	}
}

func TestClusterNodeRefusesSlotsOfAnother(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 2)
	// "foo" is in slot 12182, in the second half.
	err := c.Nodes()[0].Client(t).Get(t.Context(), "foo").Err()
	if want := "MOVED 12182 " + c.Addrs()[1]; err == nil || err.Error() != want {
		t.Errorf("the first node says %v, want %s", err, want)
	}
}

func TestClusterOfOne(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 1)
	if err := c.Client(t).Set(t.Context(), "foo", "bar", 0).Err(); err != nil {
		t.Fatal(err)
	}
}

func TestClusterOfNoneIsRefused(t *testing.T) {
	t.Parallel()
	outcome(t, func(tb testing.TB) { redistest.StartCluster(tb, 0) }).mustFail(t, "0 nodes")
}
