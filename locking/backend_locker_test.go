package locking

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/railtoken/railtoken/locking/backend"
)

// slowServer is a backend whose answer takes some time.
type slowServer struct {
	takes    time.Duration
	released bool
}

func (s *slowServer) Acquire(context.Context, backend.Request) (backend.Grant, error) {
	time.Sleep(s.takes)
	return &slowGrant{&fakeGrant{}, s}, nil
}

type slowGrant struct {
	*fakeGrant
	server *slowServer
}

func (g *slowGrant) Release(context.Context) (bool, error) {
	g.server.released = true
	return false, nil
}

func TestAGrantThatComesTooLateIsReleased(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, takes := range []time.Duration{time.Second, DefaultTTL} {
			s := &slowServer{takes: takes}
			lease, err := New(s).Acquire(t.Context(), []string{"order"}, Options{})
			late := takes == DefaultTTL
			if errors.Is(err, ErrLost) != late || (lease == nil) != late || s.released != late {
				t.Errorf("after %v: lease %v, error %v, released: %v", takes, lease, err, s.released)
			}
			if lease != nil {
				_ = lease.Release(t.Context())
			}
		}
	})
}

func TestALockerWatchesIfItsBackendDoes(t *testing.T) {
	t.Parallel()
	if _, ok := New(&slowServer{}).(Watcher); ok {
		t.Error("a Watcher on a backend that is none")
	}
	if _, ok := New(&toldServer{}).(Watcher); !ok {
		t.Error("no Watcher on a backend that is one")
	}
	defer func() {
		if recover() == nil {
			t.Error("New takes no backend")
		}
	}()
	New(nil)
}
