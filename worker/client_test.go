package worker

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/attach"
	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/middleware"
)

// virtualProducer returns a client that lives with its fake Redis in the bubble around the test.
func virtualProducer(t testing.TB) *Client {
	t.Helper()
	m, _ := redistest.Virtual(t)
	c, err := NewClient(Redis{Client: redistest.Patient(t, m)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestAClientHasTheLanesOfItsRedis(t *testing.T) {
	t.Parallel()
	at := Redis{Cluster: []string{"127.0.0.1:1"}, Lanes: 64}
	for lanes, fault := range map[int]string{0: "", 64: "", 16: "have 16 lanes, and the Redis has 64"} {
		c, err := NewClientWith(at, attach.ProducerOptions{Lanes: lanes})
		if (err == nil) != (fault == "") || err != nil && !strings.Contains(err.Error(), fault) {
			t.Errorf("%d lanes: %v, want %q", lanes, err, fault)
		}
		if err == nil {
			t.Cleanup(func() { _ = c.Close() })
		}
	}
	at.Addr, at.Cluster = "127.0.0.1:1", nil
	if _, err := NewClient(at); err == nil || !strings.Contains(err.Error(), "lanes are for a Redis Cluster") {
		t.Errorf("on one Redis: %v", err)
	}
}

func TestEnqueueRoundsUpToWholeSeconds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := virtualProducer(t)
		for _, tc := range []struct {
			given         time.Duration
			want, without time.Duration // without: what bare asynq makes of it
		}{
			{time.Millisecond, time.Second, 0},
			{time.Second, time.Second, time.Second},
			{1500 * time.Millisecond, 2 * time.Second, time.Second},
			{time.Hour + 1, time.Hour + time.Second, time.Hour},
		} {
			info, err := c.Enqueue(t.Context(), "audit", order{"42"}, asynq.Timeout(tc.given), asynq.Retention(tc.given))
			if err != nil {
				t.Fatal(err)
			}
			if info.Timeout != tc.want || info.Retention != tc.want {
				t.Errorf("%v becomes a timeout of %v and a retention of %v; want %v", tc.given, info.Timeout, info.Retention, tc.want)
			}
			bare, err := asynq.NewClientFromRedisClient(c.conn).EnqueueContext(t.Context(), orderTask(t, "audit", "42"), asynq.Timeout(tc.given))
			if err != nil {
				t.Fatal(err)
			}
			if stored, err := asynq.NewInspectorFromRedisClient(c.conn).GetTaskInfo("default", bare.ID); err != nil || stored.Timeout != tc.without {
				t.Errorf("asynq makes a timeout of %v of %v, %v: is there still a reason to round?", stored.Timeout, tc.given, err)
			}
		}
	})
}

func TestEnqueueRoundsTheUniquenessLockUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := virtualProducer(t)
		add := func() error {
			_, err := c.Enqueue(t.Context(), "audit", order{"42"}, asynq.Unique(1500*time.Millisecond))
			return err
		}
		if err := add(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(1400 * time.Millisecond)
		if err := add(); !errors.Is(err, asynq.ErrDuplicateTask) {
			t.Errorf("within its 1.5 s the uniqueness lock lets a duplicate through: %v", err)
		}
		time.Sleep(700 * time.Millisecond)
		if err := add(); err != nil {
			t.Errorf("after 2.1 s there is still a lock: %v", err)
		}
	})
}

func TestDelayedTaskIsNotDueBeforeItsTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := virtualProducer(t)
		time.Sleep(300 * time.Millisecond) // off the whole second
		for _, d := range []time.Duration{time.Millisecond, 600 * time.Millisecond, time.Second, 1700 * time.Millisecond} {
			due := time.Now().Add(d)
			for name, opt := range map[string]asynq.Option{"ProcessIn": asynq.ProcessIn(d), "ProcessAt": asynq.ProcessAt(due)} {
				info, err := c.Enqueue(t.Context(), "audit", order{"42"}, opt)
				if err != nil {
					t.Fatal(err)
				}
				stored, err := asynq.NewInspectorFromRedisClient(c.conn).GetTaskInfo("default", info.ID)
				if err != nil {
					t.Fatal(err)
				}
				if at := stored.NextProcessAt; at.Before(due) || at.After(due.Add(time.Second)) || stored.State != asynq.TaskStateScheduled {
					t.Errorf("%s %v is %v and due %v after its time", name, d, stored.State, at.Sub(due))
				}
			}
		}
		for _, opt := range []asynq.Option{asynq.ProcessIn(0), asynq.ProcessIn(-time.Second), asynq.ProcessAt(time.Now().Add(-time.Minute))} {
			info, err := c.Enqueue(t.Context(), "audit", order{"42"}, opt)
			if err != nil || info.State != asynq.TaskStatePending {
				t.Errorf("%v gives %+v, %v; want a task that runs at once", opt, info, err)
			}
		}
	})
}

func TestOtherOptionsReachAsynq(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := virtualProducer(t)
		deadline := time.Now().Add(time.Hour)
		info, err := c.EnqueueRaw(t.Context(), "audit", []byte("x"), map[string]string{"k": "v"},
			asynq.Queue("q"), asynq.MaxRetry(0), asynq.Deadline(deadline), asynq.TaskID("mine"))
		if err != nil {
			t.Fatal(err)
		}
		stored, err := asynq.NewInspectorFromRedisClient(c.conn).GetTaskInfo("q", "mine")
		if err != nil {
			t.Fatal(err)
		}
		if info.ID != "mine" || stored.MaxRetry != 0 || !stored.Deadline.Equal(deadline.Truncate(time.Second)) || stored.Headers["k"] != "v" || string(stored.Payload) != "x" {
			t.Errorf("enqueued is %+v", stored)
		}
	})
}

func TestEnqueueRefusesWhatCannotRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := virtualProducer(t)
		_, err := c.Enqueue(t.Context(), "", order{"42"})
		wantParts(t, err, "type", "empty")
		_, err = c.Enqueue(t.Context(), "audit", make(chan int))
		wantParts(t, err, `"audit"`, "cannot be encoded as JSON", "chan int")
		_, err = c.Enqueue(t.Context(), "audit", math.NaN())
		wantParts(t, err, `"audit"`, "cannot be encoded as JSON")
		_, err = c.EnqueueRaw(t.Context(), " ", nil, nil)
		wantParts(t, err, "empty")
		_, err = c.Enqueue(t.Context(), "audit", order{"42"}, asynq.Queue(" "))
		wantParts(t, err, "queue")
		_, err = c.EnqueueInOrder(t.Context(), "k", "", order{"42"})
		wantParts(t, err, "type", "empty")
		for _, key := range []string{"", strings.Repeat("k", 1025)} {
			_, err = c.EnqueueInOrder(t.Context(), key, "audit", order{"42"})
			wantParts(t, err, `"audit"`, "key")
			var unusable *middleware.KeyError
			if !errors.As(err, &unusable) {
				t.Errorf("%v is not a KeyError", err)
			}
		}
		if queues, err := asynq.NewInspectorFromRedisClient(c.conn).Queues(); err != nil || len(queues) > 0 {
			t.Errorf("queues %q, %v; want none", queues, err)
		}
	})
}

func TestEnqueueEndsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := virtualProducer(t)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := c.Enqueue(ctx, "audit", order{"42"}); !strings.Contains(err.Error(), context.Canceled.Error()) {
			t.Errorf("a context that has ended gives %v", err)
		}
	})
}

func TestDuplicatesAreReported(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := virtualProducer(t)
		for name, tc := range map[string]struct {
			opts []asynq.Option
			want error
		}{
			"unique":         {[]asynq.Option{asynq.Unique(time.Hour)}, asynq.ErrDuplicateTask},
			"own ID":         {[]asynq.Option{asynq.TaskID("mine")}, asynq.ErrTaskIDConflict},
			"unique and own": {[]asynq.Option{asynq.TaskID("other"), asynq.Unique(time.Hour)}, asynq.ErrDuplicateTask},
			"later":          {[]asynq.Option{asynq.Unique(time.Hour), asynq.ProcessIn(time.Minute)}, asynq.ErrDuplicateTask},
		} {
			if _, err := c.Enqueue(t.Context(), name, order{"42"}, tc.opts...); err != nil {
				t.Fatal(err)
			}
			if _, err := c.Enqueue(t.Context(), name, order{"42"}, tc.opts...); !errors.Is(err, tc.want) {
				t.Errorf("%s: a duplicate gives %v; want %v", name, err, tc.want)
			}
		}
	})
}

func TestClosedClientSaysSo(t *testing.T) {
	t.Parallel()
	c, err := NewClient(Redis{Addr: unusedAddr(t)})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	_, err = c.Enqueue(t.Context(), "audit", order{"42"})
	wantParts(t, err, `"audit"`, "closed")
}
