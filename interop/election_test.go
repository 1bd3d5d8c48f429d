package interop_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/trillian/util/election2"
	suite "github.com/google/trillian/util/election2/testonly"

	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/locking"
)

// election is a candidate in Trillian's terms: the master is who has the lease.
type election struct {
	locker   locking.Locker
	resource string
	lease    *locking.Lease // nil when not the master
}

// Await blocks until the candidate is the master.
func (e *election) Await(ctx context.Context) error {
	if e.lease != nil && e.lease.Err() == nil {
		return nil
	}
	if err := e.Resign(ctx); err != nil {
		return err
	}
	lease, err := await(ctx, e.locker, e.resource, locking.Options{})
	e.lease = lease
	return err
}

// WithMastership returns a context that ends with the mastership.
func (e *election) WithMastership(ctx context.Context) (context.Context, error) {
	if e.lease != nil {
		return e.lease.Context(ctx), nil
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	return ended, nil
}

// Resign gives the mastership back. One that was lost is no fault: the candidate is not the master afterwards.
func (e *election) Resign(ctx context.Context) error {
	if e.lease == nil {
		return nil
	}
	lease := e.lease
	e.lease = nil
	if err := lease.Release(ctx); !errors.Is(err, locking.ErrLost) {
		return err
	}
	return nil
}

// Close ends the candidacy.
func (e *election) Close(ctx context.Context) error { return e.Resign(ctx) }

// elections makes candidates and ends with the test those that the suite leaves in office.
type elections struct {
	t      *testing.T
	locker locking.Locker
	prefix string
}

// NewElection returns a candidate for a resource.
func (f *elections) NewElection(_ context.Context, resource string) (election2.Election, error) {
	e := &election{locker: f.locker, resource: f.prefix + resource}
	f.t.Cleanup(func() { _ = e.Close(context.Background()) })
	return e, nil
}

func TestTrillianElections(t *testing.T) {
	t.Parallel()
	forEachBackend(t, func(t *testing.T, b backend, servers []*redistest.Server) {
		for _, test := range suite.Tests {
			t.Run(test.Name, func(t *testing.T) {
				test.Run(t, &elections{t, b.open(t, servers, nil), test.Name + "/"})
			})
		}
	})
}

// The suite has one candidate at a time, so the main promise of an election is left to this test.
func TestASecondCandidateIsElectedAfterTheFirst(t *testing.T) {
	t.Parallel()
	forEachBackend(t, func(t *testing.T, b backend, servers []*redistest.Server) {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		first := &election{locker: b.open(t, servers, nil), resource: "log"}
		second := &election{locker: b.open(t, servers, nil), resource: "log"}
		if err := first.Await(ctx); err != nil {
			t.Fatal(err)
		}
		office, err := first.WithMastership(ctx)
		if err != nil {
			t.Fatal(err)
		}

		short, stop := context.WithTimeout(ctx, 100*time.Millisecond)
		defer stop()
		if err := second.Await(short); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("the second candidate's wait ended by %v beside a master", err)
		}
		elected := make(chan error, 1)
		go func() { elected <- second.Await(ctx) }()
		if office.Err() != nil {
			t.Errorf("the first one's mastership ended by %v", context.Cause(office))
		}
		if err := first.Close(ctx); err != nil {
			t.Error(err)
		}
		if err := <-elected; err != nil {
			t.Fatal(err)
		}
		if !errors.Is(context.Cause(office), locking.ErrReleased) {
			t.Errorf("the first one's mastership ended by %v, want ErrReleased", context.Cause(office))
		}
		if err := second.Close(ctx); err != nil {
			t.Error(err)
		}
	})
}
