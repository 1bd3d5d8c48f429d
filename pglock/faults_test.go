package pglock_test

import (
	"bytes"
	"context"
	"errors"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/railtoken/railtoken/internal/testing/dbtest"
	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/pglock"
)

// quick bounds what must not hang.
const quick = 15 * time.Second

func TestLeasesSurviveACrashOrAreLost(t *testing.T) {
	t.Parallel()
	server := dbtest.StartPostgres(t)
	d := newDatabaseOn(t, server)
	l := d.locker(t, pglock.Options{Listen: d.url})
	long := acquire(t, l, locking.Options{TTL: time.Minute}, "long")
	short := acquire(t, l, locking.Options{TTL: time.Second}, "short")
	token, err := long.Fence(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	server.Kill(t)

	began := time.Now()
	_, err = l.Acquire(t.Context(), []string{"other"}, locking.Options{})
	if !errors.Is(err, locking.ErrUnavailable) || time.Since(began) > quick {
		t.Errorf("an attempt without a server: %v after %v, want ErrUnavailable", err, time.Since(began))
	}
	if err := long.Renew(t.Context()); err == nil || errors.Is(err, locking.ErrLost) {
		t.Errorf("a renewal without a server: %v, want an error that is no loss", err)
	}
	select {
	case <-short.Done():
	case <-time.After(quick):
		t.Fatal("a lease outlives its TTL")
	}
	lost, ok := errors.AsType[*locking.LostError](short.Err())
	if !ok || lost.Reason != locking.LossExpired {
		t.Errorf("the lost lease says %v", short.Err())
	}

	server.Restart(t)
	if err := long.Renew(t.Context()); err != nil {
		t.Errorf("the lease did not survive the crash: %v", err)
	}
	if _, err := l.Acquire(t.Context(), []string{"long"}, locking.Options{}); !errors.Is(err, locking.ErrHeld) {
		t.Errorf("its key after the crash: %v, want ErrHeld", err)
	}
	if err := long.Release(t.Context()); err != nil {
		t.Errorf("release: %v", err)
	}
	next := acquire(t, l, locking.Options{}, "long", "short")
	if later, err := next.FenceOf(t.Context(), "long"); err != nil || later <= token {
		t.Errorf("token %d (error %v) after %d", later, err, token)
	}
}

func TestWhatAStoppedServerGrantsLateIsGivenBack(t *testing.T) {
	t.Parallel()
	server := dbtest.StartPostgres(t)
	d := newDatabaseOn(t, server)
	l := d.locker(t, pglock.Options{})
	held := acquire(t, l, locking.Options{TTL: time.Minute}, "held") // its connection is open
	server.Pause(t)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := l.Acquire(ctx, []string{"key"}, locking.Options{TTL: time.Minute}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("an attempt that a stopped server does not answer: %v", err)
	}
	server.Resume()
	free(t, l, "key")
	if err := held.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

// free returns once a key can be had, which must be long before a TTL ends.
func free(t *testing.T, l locking.Locker, keys ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), quick)
	defer cancel()
	lease, err := locking.Wait(ctx, l, keys, locking.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := lease.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestALostReplyLeavesNoKeyLocked(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	u, err := url.Parse(d.url)
	if err != nil {
		t.Fatal(err)
	}
	proxy := redistest.NewProxy(t, u.Host)
	u.Host = proxy.Addr()
	l := newLocker(t, open(t, u.String()+"&default_query_exec_mode=exec"), pglock.Options{})
	cutOne := func(call string) *atomic.Bool {
		cut := &atomic.Bool{}
		proxy.Cut(func(request, _ []byte) bool {
			return bytes.Contains(request, []byte(call)) && cut.CompareAndSwap(false, true)
		})
		return cut
	}

	cut := cutOne("railtoken.acquire")
	_, err = l.Acquire(t.Context(), []string{"key"}, locking.Options{TTL: time.Minute})
	if !cut.Load() || !errors.Is(err, locking.ErrUnavailable) {
		t.Errorf("an attempt whose reply is lost: %v, want ErrUnavailable", err)
	}
	free(t, l, "key")

	lease := acquire(t, l, locking.Options{TTL: time.Minute}, "key")
	cut = cutOne("railtoken.release")
	if err := lease.Release(t.Context()); !cut.Load() || err != nil {
		t.Errorf("a release whose reply is lost: %v", err)
	}
	free(t, l, "key")
}

func TestAnExhaustedPoolIsNamed(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	db := d.open(t)
	db.SetMaxOpenConns(1)
	l := newLocker(t, db, pglock.Options{})
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_, err = l.Acquire(t.Context(), []string{"key"}, locking.Options{})
	if !errors.Is(err, locking.ErrUnavailable) || !strings.Contains(err.Error(), "SetMaxOpenConns") {
		t.Errorf("an attempt with all connections in use: %v", err)
	}
	if err := conn.Close(); err != nil {
		t.Error(err)
	}
	free(t, l, "key")
}

func TestAListenerComesBackAfterACrash(t *testing.T) {
	t.Parallel()
	server := dbtest.StartPostgres(t)
	d := newDatabaseOn(t, server)
	l := d.locker(t, pglock.Options{Listen: d.url})
	watcher, ok := l.(locking.Watcher)
	if !ok {
		t.Fatal("a Locker with a listener is no Watcher")
	}
	released, stop, err := watcher.Watch(t.Context(), []string{"key"})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	await := func(what string) {
		t.Helper()
		select {
		case <-released:
		case <-time.After(quick):
			t.Fatalf("no notification after %s", what)
		}
	}
	await("the listener has connected")
	server.Kill(t)
	server.Restart(t)
	await("it has connected again")
	lease := acquire(t, l, locking.Options{}, "key")
	if _, err := l.Acquire(t.Context(), []string{"key"}, locking.Options{Notify: time.Minute}); !errors.Is(err, locking.ErrHeld) {
		t.Fatal(err)
	}
	if err := lease.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	await("a release")
}
