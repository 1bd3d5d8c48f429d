package worker

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/middleware"
)

// advised are the rules that the package documentation advises.
var advised = []string{"~asynq:*", "~railtoken:*", "&asynq:*", "&railtoken:*", "+@all", "-@dangerous", "+info"}

// as returns where a server is for a user with these rules.
func as(t testing.TB, server *redistest.Server, rules ...string) Redis {
	t.Helper()
	var o redis.Options
	server.User(t, "worker", rules...)(&o)
	return Redis{Addr: server.Addr(), Username: o.Username, Password: Secret(o.Password)}
}

func TestAUserThatMayNotUseLocksIsRefused(t *testing.T) {
	t.Parallel()
	tasks, locks := redistest.Start(t), redistest.Start(t)
	err := starts(t, Config{Redis: Redis{Addr: tasks.Addr()}, LockRedis: as(t, locks, "~app:*", "&*", "+@all")})
	wantParts(t, err, locks.Addr(), "ACL SETUSER worker ~railtoken:*")
}

func TestUserOnEachServerForLocksIsChecked(t *testing.T) {
	t.Parallel()
	servers, cfg := lockServers(t, 3)
	for _, s := range servers[:2] {
		at := as(t, s, "~asynq:*", "&*", "+@all", "-info")
		cfg.LockRedis.Username, cfg.LockRedis.Password = at.Username, at.Password
	}
	as(t, servers[2], "~*", "&*", "+@all")
	wantParts(t, starts(t, cfg), "no majority", servers[0].Addr(), servers[1].Addr(), "ACL SETUSER worker ~railtoken:*")
	cfg.LockGuard = locking.GuardConnect
	wantParts(t, starts(t, cfg), "ACL SETUSER worker ~railtoken:* +info")
}

func TestUserWithoutChannelsIsAWarning(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	log, lines := newLines()
	if err := starts(t, Config{Redis: as(t, server, "~asynq:*", "~railtoken:*", "+@all"), Logger: log}); err != nil {
		t.Error(err)
	}
	text := lines.all()
	if n := strings.Count(text, "may not use channels"); n != 1 || !strings.Contains(text, "ACL SETUSER worker &asynq:* &railtoken:*") {
		t.Errorf("%d warnings in the log:\n%s", n, text)
	}
}

func TestAdvisedUserIsNeverRefused(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	at := as(t, server, advised...)
	log, _ := newLines()
	w := idle(t, Config{Redis: at, Logger: log, Concurrency: 8})
	const each = 6
	ran := make(chan string, 3*each)
	for taskType, strategy := range map[string]middleware.Strategy{
		"parked": middleware.Requeue{}, "waits": middleware.Wait{}, "ordered": middleware.Requeue{Order: middleware.FIFO},
	} {
		if err := Handle(w, taskType, Handler[order]{Keys: order.keys, Strategy: strategy, Run: func(_ context.Context, o order) error {
			ran <- o.ID
			return nil
		}}); err != nil {
			t.Fatal(err)
		}
	}
	client, err := NewClient(at)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	for range each {
		for _, taskType := range []string{"parked", "waits"} {
			if _, err := client.Enqueue(t.Context(), taskType, order{ID: taskType}, asynq.MaxRetry(0)); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := client.EnqueueInOrder(t.Context(), "order:ordered", "ordered", order{ID: "ordered"}); err != nil {
			t.Fatal(err)
		}
	}
	start(t, w)
	for range 3 * each {
		select {
		case <-ran:
		case <-time.After(patience):
			t.Fatal("a task did not run")
		}
	}
	if err := w.Shutdown(); err != nil {
		t.Error(err)
	}
	refused, err := server.Client(t).ACLLog(t.Context(), 100).Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range refused {
		if r.Object != "client" { // before Redis 7 go-redis is not allowed to tell its version
			t.Errorf("the user was refused %s %q", r.Reason, r.Object)
		}
	}
}
