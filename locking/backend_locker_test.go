package locking

import (
	"context"
	"errors"
	"fmt"
	"slices"
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

// bareServer is a backend whose grants are lost, and whose errors say no more than that.
type bareServer struct{ label string }

func (s *bareServer) Acquire(_ context.Context, r backend.Request) (backend.Grant, error) {
	s.label = r.Label
	return bareGrant{&fakeGrant{renew: func(context.Context, int) error { return fmt.Errorf("gone: %w", ErrLost) }}}, nil
}

type bareGrant struct{ *fakeGrant }

func (bareGrant) Release(context.Context) (bool, error) {
	return false, fmt.Errorf("gone: %w", ErrLost)
}

func TestALossOfABackendIsALostError(t *testing.T) {
	t.Parallel()
	isLoss := func(what string, err error) {
		if loss, ok := errors.AsType[*LostError](err); !ok || loss.Reason != LossTaken || !slices.Equal(loss.Keys, []string{"order"}) ||
			loss.Err == nil {
			t.Errorf("%s: %v (%T), want a LostError", what, err, err)
		}
	}
	renewed, err := New(new(bareServer)).Acquire(t.Context(), []string{"order"}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	isLoss("Renew", renewed.Renew(t.Context()))
	isLoss("Err", renewed.Err())
	isLoss("the cause", context.Cause(renewed.Context(t.Context())))
	_ = renewed.Release(t.Context())
	released, err := New(new(bareServer)).Acquire(t.Context(), []string{"order"}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	isLoss("Release", released.Release(t.Context()))
}

func TestABackendAlwaysGetsALabel(t *testing.T) {
	t.Parallel()
	for label, want := range map[string]string{"": DefaultLabel(), "ann": "ann"} {
		s := new(bareServer)
		lease, err := New(s).Acquire(t.Context(), []string{"order"}, Options{Label: label})
		if err != nil {
			t.Fatal(err)
		}
		_ = lease.Release(t.Context())
		if s.label != want {
			t.Errorf("label %q is %q, want %q", label, s.label, want)
		}
	}
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
