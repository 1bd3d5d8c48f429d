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
	renewal  error
	released bool
}

func (s *slowServer) Acquire(context.Context, backend.Request) (backend.Grant, error) {
	time.Sleep(s.takes)
	return &slowGrant{&fakeGrant{renew: func(context.Context, int) error { return s.renewal }}, s}, nil
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
		for _, tt := range []struct {
			takes   time.Duration
			renewal error
			late    bool
		}{
			{takes: time.Second, renewal: errNoAnswer},
			{takes: DefaultTTL - time.Second},
			{takes: DefaultTTL - time.Second, renewal: errNoAnswer, late: true},
			{takes: DefaultTTL, late: true},
		} {
			s := &slowServer{takes: tt.takes, renewal: tt.renewal}
			lease, err := New(s).Acquire(t.Context(), []string{"order"}, Options{})
			if errors.Is(err, ErrLost) != tt.late || (lease == nil) != tt.late || s.released != tt.late {
				t.Errorf("%+v: lease %v, error %v, released: %v", tt, lease, err, s.released)
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
