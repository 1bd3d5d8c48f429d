package locking

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/lockaccess"
	"github.com/railtoken/railtoken/internal/lockwire"
	"github.com/railtoken/railtoken/internal/testing/redistest"
)

var errSilent = errors.New("silent")

// mute is a worker that is silent while it is set.
type mute struct{ atomic.Bool }

func (m *mute) silent() error {
	if m.Load() {
		return errSilent
	}
	return nil
}

// silencing runs a test in virtual time with a Locker and its Redis.
func silencing(t *testing.T, test func(t *testing.T, s *Single, client *redis.Client)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, client := redistest.Virtual(t)
		s, err := NewSingle(client, SingleOptions{})
		if err != nil {
			t.Fatal(err)
		}
		test(t, s, client)
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
}

// acquired takes a lease, and returns it with the name of the worker that its lock tells.
func acquired(t *testing.T, s *Single, client *redis.Client, key string) (*Lease, string) {
	t.Helper()
	l, err := s.Acquire(t.Context(), []string{key}, Options{TTL: 30 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	return l, lockwire.WorkerOfOwner(client.Get(t.Context(), "railtoken:lock:{"+key+"}").Val())
}

func TestOnlyLeasesThatEndWithASilenceTellTheirWorker(t *testing.T) {
	silencing(t, func(t *testing.T, s *Single, client *redis.Client) {
		var m mute
		before, _ := acquired(t, s, client, "before")
		lapsed, stop := s.endWhenSilent("WORKER01", m.silent)
		during, name := acquired(t, s, client, "during")
		if name != "WORKER01" {
			t.Errorf("the lock tells the worker %q", name)
		}
		m.Store(true)
		silent, name := acquired(t, s, client, "silent")
		if name == "WORKER01" {
			t.Error("a lock that is taken in the silence tells the worker")
		}
		began := time.Now()
		select {
		case <-during.Done():
		case <-time.After(time.Minute):
		}
		if took := time.Since(began); took > suspensionInterval || !errors.Is(during.Err(), ErrLost) || !errors.Is(during.Err(), errSilent) {
			t.Errorf("after %v of silence the lease has the error %v", took, during.Err())
		}
		lapsed(errSilent)
		m.Store(false)
		after, name := acquired(t, s, client, "after")
		if name != "WORKER01" {
			t.Errorf("after the silence a lock tells the worker %q", name)
		}
		stop()
		_, name = acquired(t, s, client, "stopped")
		if name == "WORKER01" {
			t.Error("a lock tells a worker that has stopped")
		}
		m.Store(true)
		time.Sleep(5 * time.Second)
		for what, l := range map[string]*Lease{"before": before, "in": silent, "after": after} {
			if err := l.Err(); err != nil {
				t.Errorf("a lease that was taken %s the silence: %v", what, err)
			}
		}
	})
}

// The silence ends before the lease notices it, and before a call is answered that was made in it.
func TestALapseEndsWhatBeganBeforeIt(t *testing.T) {
	silencing(t, func(t *testing.T, s *Single, client *redis.Client) {
		var m mute
		lapsed, stop := s.endWhenSilent("WORKER01", m.silent)
		defer stop()
		began := s.suspension.now()
		lease, _ := acquired(t, s, client, "order")
		other, _ := acquired(t, s, client, "other")
		handed := other.next(nil, Options{TTL: 30 * time.Second, MaxHold: time.Hour}.withDefaults())
		if handed == nil {
			t.Fatal("no lease was handed off")
		}
		lapsed(errSilent)
		if err := lease.Err(); !errors.Is(err, errSilent) {
			t.Errorf("a lease from before the lapse: %v", err)
		}
		if err := handed.Err(); !errors.Is(err, errSilent) {
			t.Errorf("a lease that was handed off before the lapse: %v", err)
		}
		if _, err := newLease(t.Context(), &fakeGrant{began: time.Now()}, []string{"late"}, Options{TTL: time.Minute}.withDefaults(), began); !errors.Is(err, ErrLost) ||
			!errors.Is(err, errSilent) {
			t.Errorf("a lease of a call from before the lapse: %v", err)
		}
		later, _ := acquired(t, s, client, "later")
		if err := later.Err(); err != nil {
			t.Errorf("a lease from after the lapse: %v", err)
		}
	})
}

// Both share the Locker: a lock that tells one of them ends with the silence of each.
func TestASharedLockerEndsLeasesWithAnyOfItsWorkers(t *testing.T) {
	silencing(t, func(t *testing.T, s *Single, client *redis.Client) {
		var first, second mute
		_, stop := s.endWhenSilent("WORKER01", first.silent)
		defer stop()
		lapsed, stop := s.endWhenSilent("WORKER02", second.silent)
		defer stop()
		lease, name := acquired(t, s, client, "order")
		if name != "WORKER01" {
			t.Errorf("the lock tells the worker %q", name)
		}
		second.Store(true)
		time.Sleep(suspensionInterval)
		synctest.Wait()
		if err := lease.Err(); !errors.Is(err, errSilent) {
			t.Errorf("the other worker was silent: %v", err)
		}
		lapsed(errSilent)
	})
}

// The reply to the first call is lost, and the second one is made in a silence.
func TestATakeOverThatIsRepeatedKeepsItsWorker(t *testing.T) {
	silencing(t, func(t *testing.T, s *Single, client *redis.Client) {
		var m mute
		lapsed, stop := s.endWhenSilent("WORKER01", m.silent)
		defer stop()
		holder, _ := acquired(t, s, client, "order")
		var calls atomic.Int64
		client.AddHook(redistest.Hook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
			err := next(ctx, cmd)
			if !strings.HasPrefix(cmd.Name(), "eval") || err != nil || calls.Add(1) > 1 {
				return err
			}
			m.Store(true)
			return redistest.Fail(cmd, io.EOF)
		}))
		value := client.Get(t.Context(), "railtoken:lock:{order}").Val()
		lease, err := s.takeOver(t.Context(), lockaccess.Request{
			Key: "order", Expect: lockwire.Name(value), Mark: lockwire.ParseOwner(value).Mark, TTL: 30 * time.Second,
		})
		if !errors.Is(err, errSilent) {
			t.Errorf("the lock tells a worker that is silent, and there is a lease of it: %v, error %v", lease, err)
		}
		if name := lockwire.WorkerOfOwner(client.Get(t.Context(), "railtoken:lock:{order}").Val()); name != "WORKER01" {
			t.Errorf("the lock tells the worker %q", name)
		}
		if holder.Err() == nil {
			t.Error("the holder before is none the wiser")
		}
		lapsed(errSilent)
		m.Store(false)
	})
}
