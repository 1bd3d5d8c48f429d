package attach_test

import (
	"context"
	"net"
	"strings"
	"testing"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/attach"
	"github.com/railtoken/railtoken/internal/testing/redistest"
)

// lines is a Logger of asynq's, or a Writer of slog's, that awaits a text.
type lines struct {
	want string
	seen chan string
}

func newLines(want string) *lines { return &lines{want, make(chan string, 1)} }

func (l *lines) note(args ...any) {
	for _, arg := range args {
		if text, ok := arg.(string); ok && strings.Contains(text, l.want) {
			select {
			case l.seen <- text:
			default:
			}
		}
	}
}

func (l *lines) Debug(args ...any) {}
func (l *lines) Info(args ...any)  {}
func (l *lines) Warn(args ...any)  { l.note(args...) }
func (l *lines) Error(args ...any) { l.note(args...) }
func (l *lines) Fatal(args ...any) { l.note(args...) }

// attached attaches locks to a client, until the end of the test.
func attached(t *testing.T, client redis.UniversalClient, cfg asynq.Config, opts attach.Options) *attach.Attached {
	t.Helper()
	a, err := attach.New(client, cfg, opts)
	ok(t, err)
	t.Cleanup(func() { ok(t, a.Close()) })
	return a
}

func TestCheckRefusesARedisThatIsNotFit(t *testing.T) {
	t.Parallel()
	master := redistest.Start(t)
	host, port, err := net.SplitHostPort(master.Addr())
	ok(t, err)
	user := func(rules ...string) redis.UniversalClient {
		s := redistest.Start(t)
		return s.Client(t, s.User(t, "app", rules...))
	}
	for name, tt := range map[string]struct {
		client redis.UniversalClient
		want   string // empty when it is fit
	}{
		"keys":     {user("~asynq:*", "&*", "+@all"), "ACL SETUSER app ~railtoken:*"},
		"command":  {user("~*", "&*", "+@all", "-zadd"), "ACL SETUSER app +zadd"},
		"channels": {user("~*", "+@all"), ""},
		"advised":  {user("~asynq:*", "~railtoken:*", "&asynq:*", "&railtoken:*", "+@all", "-@dangerous", "+info"), ""},
		"eviction": {redistest.Start(t, "--maxmemory", "200mb", "--maxmemory-policy", "allkeys-lru").Client(t), "maxmemory-policy noeviction"},
		"replica":  {redistest.Start(t, "--replicaof", host, port).Client(t), "is a replica"},
	} {
		err := attached(t, tt.client, asynq.Config{}, attach.Options{}).Check(t.Context())
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
	}
}

func TestEvictionCanBeAllowed(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t, "--maxmemory", "200mb", "--maxmemory-policy", "allkeys-lru").Client(t)
	ok(t, attached(t, client, asynq.Config{}, attach.Options{AllowEviction: true}).Check(t.Context()))
}

// The user gets its rules while the server runs.
func TestNoTaskIsFetchedUntilTheUserMayLock(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	admin := server.Client(t)
	client := server.Client(t, server.User(t, "app", "~asynq:*", "+@all"))
	log := newLines("ACL SETUSER app ~railtoken:*")
	a := attached(t, client, asynq.Config{Logger: log}, attach.Options{})
	r := &rig{t, admin, asynq.NewClientFromRedisClient(admin), asynq.NewInspectorFromRedisClient(admin)}
	task := r.enqueue("order:1", asynq.MaxRetry(0))
	ran := make(chan string, 1)
	r.serve(a.Client(), a.Config(), a.Lock(byPayload)(asynq.HandlerFunc(func(_ context.Context, task *asynq.Task) error {
		ran <- string(task.Payload())
		return nil
	})))
	receive(t, log.seen)
	r.settled(task, asynq.TaskStatePending)
	ok(t, admin.Do(t.Context(), "ACL", "SETUSER", "app", "~railtoken:*").Err())
	receive(t, ran)
}

// Its rules are taken away while the server runs.
func TestAUserThatLosesRulesArchivesNoTask(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	admin := server.Client(t)
	client := server.Client(t, server.User(t, "app", "~*", "&*", "+@all"))
	log := newLines("~railtoken:*") // the remedy
	a := attached(t, client, asynq.Config{Logger: log}, attach.Options{})
	ok(t, a.Check(t.Context()))
	r := &rig{t, admin, asynq.NewClientFromRedisClient(admin), asynq.NewInspectorFromRedisClient(admin)}
	r.serve(a.Client(), a.Config(), a.Lock(byPayload)(asynq.HandlerFunc(func(context.Context, *asynq.Task) error { return nil })))
	ok(t, admin.Do(t.Context(), "ACL", "SETUSER", "app", "resetkeys", "~asynq:*").Err())
	task := r.enqueue("order:1", asynq.MaxRetry(0))
	receive(t, log.seen)
	a.Stop() // it waits no longer in its slot
	if info := r.settled(task, asynq.TaskStateRetry); info.Retried != 0 {
		t.Errorf("%+v", info)
	}
}
