package broker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/railtoken/railtoken/internal/testing/process"
	"github.com/railtoken/railtoken/internal/testing/redistest"
)

// The list is as it was: no task is taken, and none changes its place.
func TestATaskFromElsewhereEndsThePauseAtOnce(t *testing.T) {
	t.Parallel()
	for _, pending := range [][]string{{"a"}, {"a", "b", "c"}} {
		synctest.Test(t, func(t *testing.T) {
			m, client := redistest.Virtual(t)
			c := New(client, Options{Interval: time.Hour, Queues: numbered(2)})
			defer c.Silence()
			producer := redistest.VirtualClient(t, m)
			go func() {
				time.Sleep(time.Minute)
				producer.RPush(t.Context(), "asynq:{default}:pending", pending)
			}()
			began := time.Now()
			if come := c.pacer.pause(t.Context()); !come || time.Since(began) != time.Minute {
				t.Errorf("the pause took %v, and a task has come: %v", time.Since(began), come)
			}
			if got := producer.LRange(t.Context(), "asynq:{default}:pending", 0, -1).Val(); !slices.Equal(got, pending) {
				t.Errorf("%v are pending, want %v", got, pending)
			}
		})
	}
}

// Another server was faster: those that come in vain listen less and less.
func TestABellThatRingsInVainFallsSilent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, client := redistest.Virtual(t)
		client.LPush(t.Context(), "asynq:{default}:pending", "of a queue that is paused")
		c := New(client, Options{Interval: time.Second / 4, Queues: numbered(1)})
		defer c.Silence()
		began, rings := time.Now(), 0
		for time.Since(began) < 20*time.Second {
			if c.pacer.pause(t.Context()) {
				rings++
				c.pacer.followed(redis.Nil)
			}
		}
		if rings < 15 || rings > 22 {
			t.Errorf("a bell rang %d times in vain within 20 s, want once a second", rings)
		}
		c.bell.followed(true, time.Second)
		time.Sleep(quietMost)
		if !c.pacer.pause(t.Context()) {
			t.Error("it does not ring any more")
		}
	})
}

// An ACL or a proxy may not let the call pass.
func TestABellThatIsNotAllowedIsLeftAlone(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	may := server.User(t, "no-blocking", "~*", "+@all", "-blmove")
	refused := make(chan struct{}, 100)
	b := newBell(server.Client(t, may), Options{Queues: numbered(3)}, func(string) {})
	defer b.close()
	b.client.AddHook(seen(func(error) { refused <- struct{}{} }))
	if b.listen() == nil {
		t.Fatal("it is not listened to")
	}
	for range 3 {
		redistest.Receive(t, refused, patience)
	}
	b.waiting.Wait()
	for range 100 {
		if b.listen() != nil {
			t.Fatal("it is listened to although the call is not allowed")
		}
	}
}

// seen calls a function with the outcome of each BLMOVE.
type seen func(error)

func (seen) DialHook(next redis.DialHook) redis.DialHook { return next }

func (seen) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (s seen) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if cmd.Name() == "blmove" {
			s(err)
		}
		return err
	}
}

func TestASilencedBellEndsItsCalls(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := server.Client(t)
	b := newBell(client, Options{Queues: numbered(2)}, func(string) {})
	b.listen()
	wantBlocked(t, client, 2)
	b.close()
	b.mu.Lock()
	for key, called := range b.calls {
		if called {
			t.Errorf("a call for %s outlives the bell", key)
		}
	}
	b.quiet = time.Time{} // because the calls have failed
	b.mu.Unlock()
	b.close()
	if b.listen() != nil {
		t.Error("it is listened to after its end")
	}
	wantBlocked(t, client, 0)
}

// A network that loses all packets answers no dial, and go-redis dials five times.
func TestABellEndsWhileNoDialIsAnswered(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dials := make(chan struct{}, 10)
		client := redis.NewClient(&redis.Options{
			Addr: "127.0.0.1:6379", MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}, // no look-up of names
			Dialer: func(ctx context.Context, _, _ string) (net.Conn, error) {
				dials <- struct{}{}
				<-ctx.Done()
				return nil, ctx.Err()
			},
		})
		b := newBell(client, Options{Queues: numbered(1)}, func(string) {})
		b.listen()
		<-dials
		began := time.Now()
		b.close()
		if took := time.Since(began); took > 0 {
			t.Errorf("its end took %v", took)
		}
		if err := client.Close(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute) // go-redis dials on by itself
	})
}

// wantBlocked waits until so many calls wait in Redis.
func wantBlocked(t *testing.T, client *redis.Client, want int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := process.Poll(ctx, nil, func() error {
		if info := client.Info(ctx, "clients").Val(); !strings.Contains(info, fmt.Sprintf("blocked_clients:%d\r\n", want)) {
			return errors.New(info)
		}
		return nil
	}); err != nil {
		t.Fatalf("want %d calls that wait in Redis: %v", want, err)
	}
}
