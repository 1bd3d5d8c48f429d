package locking_test

import (
	"errors"
	"testing"

	"github.com/railtoken/railtoken/locking"
)

func TestAReleaseThatFailsNamesItsCause(t *testing.T) {
	t.Parallel()
	servers, nodes := startNodes(t, 3)
	l := newRedlock(t, nodes, unguarded)
	lease := eventually(t, l, "order:1")
	for _, s := range servers {
		s.Pause()
	}
	err := lease.Release(t.Context())
	for _, s := range servers {
		s.Resume()
	}
	if failed, ok := errors.AsType[*locking.OpError](err); !ok || failed.Op != "release" || !errors.Is(err, locking.ErrUnavailable) {
		t.Errorf("the release fails with %v", err)
	}
}
