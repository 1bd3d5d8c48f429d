package attach_test

import (
	"bufio"
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/attach"
	"github.com/railtoken/railtoken/inspect"
	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/middleware"
)

// tenant is an application in a namespace: a server, a producer and an Inspector of railtoken and of asynq, all by a user of
// Redis who may use only names of the namespace.
type tenant struct {
	client   *redis.Client // without the namespace
	attached *attach.Attached
	producer *attach.Producer
	held     *inspect.Inspector
	tasks    *asynq.Inspector
	began    chan string
	ended    chan error
	goOn     chan struct{}
	payload  chan string
}

// settle is how long a test waits for an event.
const settle = 30 * time.Second

func newTenant(t *testing.T, server *redistest.Server, name string) *tenant {
	t.Helper()
	user := server.User(t, name, "~"+name+":*", "&"+name+":*", "+@all", "-@dangerous", "+info")
	a := &tenant{
		client: server.Client(t, user), began: make(chan string, 9), ended: make(chan error, 9), goOn: make(chan struct{}),
		payload: make(chan string, 9),
	}
	find := func(context.Context, *asynq.Task) ([]string, error) { return []string{"order:1"}, nil }
	var err error
	a.attached, err = attach.New(a.client, asynq.Config{Concurrency: 4, LogLevel: asynq.FatalLevel},
		attach.Options{Namespace: name, NamespaceTasks: true})
	if err != nil {
		t.Fatal(err)
	}
	a.producer, err = attach.NewProducer(a.client, attach.ProducerOptions{
		Namespace: name, NamespaceTasks: true, Keys: map[string]middleware.KeyFunc{"test": find},
	})
	if err != nil {
		t.Fatal(err)
	}
	in, err := attach.Namespaced(a.client, name, true)
	if err != nil {
		t.Fatal(err)
	}
	if a.held, err = inspect.New(inspect.Options{Tasks: in}); err != nil {
		t.Fatal(err)
	}
	a.tasks = asynq.NewInspectorFromRedisClient(in)
	srv := asynq.NewServerFromRedisClient(a.attached.Client(), a.attached.Config())
	handler := a.attached.Lock(find)(asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) (err error) {
		id, _ := asynq.GetTaskID(ctx)
		a.began <- id
		a.payload <- string(task.Payload())
		select {
		case <-a.goOn:
		case <-ctx.Done():
			err = errors.Join(asynq.SkipRetry, ctx.Err())
		}
		a.ended <- err
		return err
	}))
	if err := srv.Start(handler); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		srv.Shutdown()
		for _, err := range []error{a.held.Close(), a.producer.Close(), a.attached.Close(), in.Close()} {
			if err != nil {
				t.Error(err)
			}
		}
	})
	return a
}

// enqueue adds a task of the one key, with a payload that looks like a name of asynq's.
func (a *tenant) enqueue(t *testing.T, id string) {
	t.Helper()
	if _, err := a.producer.EnqueueContext(t.Context(), asynq.NewTask("test", []byte("asynq:{default}:t:"+id)), asynq.TaskID(id)); err != nil {
		t.Fatal(err)
	}
}

// begins awaits the run of a task.
func (a *tenant) begins(t *testing.T, id string) {
	t.Helper()
	if got := redistest.Receive(t, a.began, settle); got != id {
		t.Fatalf("%s runs, want %s", got, id)
	}
	if got := redistest.Receive(t, a.payload, settle); got != "asynq:{default}:t:"+id {
		t.Fatalf("its payload is %q", got)
	}
}

// waits awaits that so many tasks wait for the key.
func (a *tenant) waits(t *testing.T, n int) {
	t.Helper()
	for end := time.Now().Add(settle); ; {
		key, err := a.held.Look(t.Context(), "order:1", 9)
		if err != nil || time.Now().After(end) {
			t.Fatalf("%d tasks wait, want %d; %v", key.Waiting, n, err)
		}
		if key.Waiting == n && len(key.Waiters) == n {
			return
		}
		<-time.After(10 * time.Millisecond)
	}
}

func TestNamespacesShareNothing(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	seen := monitored(t, server)
	a, b := newTenant(t, server, "shop-a"), newTenant(t, server, "shop-b")

	a.enqueue(t, "1")
	a.begins(t, "1")
	b.enqueue(t, "1") // the same ID, queue and key
	b.begins(t, "1")
	a.enqueue(t, "2")
	a.waits(t, 1)
	b.waits(t, 0)
	b.goOn <- struct{}{} // wakes nothing of the other
	if err := redistest.Receive(t, b.ended, settle); err != nil {
		t.Error(err)
	}
	a.waits(t, 1)

	if err := b.tasks.PauseQueue("default"); err != nil {
		t.Fatal(err)
	}
	b.enqueue(t, "3")
	a.goOn <- struct{}{}
	a.begins(t, "2")
	if len(b.began) > 0 {
		t.Error("a task of a paused queue runs")
	}
	if err := b.tasks.UnpauseQueue("default"); err != nil {
		t.Fatal(err)
	}
	b.begins(t, "3")
	b.enqueue(t, "2")
	b.waits(t, 1)
	if err := b.tasks.CancelProcessing("2"); err != nil { // which runs in the other one alone
		t.Fatal(err)
	}
	if err := b.tasks.CancelProcessing("3"); err != nil {
		t.Fatal(err)
	}
	<-a.ended
	if err := redistest.Receive(t, b.ended, settle); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled task ends with %v", err)
	}
	b.begins(t, "2")
	for _, x := range []*tenant{a, b} {
		if n := len(x.ended); n > 0 {
			t.Errorf("%d tasks have ended", n)
		}
		close(x.goOn)
		if err := redistest.Receive(t, x.ended, settle); err != nil {
			t.Error(err)
		}
		servers, err := x.tasks.Servers()
		if err != nil || len(servers) != 1 {
			t.Errorf("asynq sees %d servers, %v", len(servers), err)
		}
	}
	seen(func(name string) bool {
		return strings.HasPrefix(name, "shop-a:") || strings.HasPrefix(name, "shop-b:")
	})
}

// monitored returns a function that has a test fail for each name in the commands of other users that is not right.
func monitored(t *testing.T, server *redistest.Server) (check func(right func(name string) bool)) {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	lines, ended := make(chan string, 1_000_000), make(chan struct{})
	go func() {
		defer close(ended)
		read := bufio.NewScanner(conn)
		read.Buffer(nil, 16<<20)
		for read.Scan() {
			lines <- read.Text()
		}
	}()
	t.Cleanup(func() {
		_ = conn.Close()
		<-ended
	})
	if _, err := conn.Write([]byte("MONITOR\r\n")); err != nil {
		t.Fatal(err)
	}
	redistest.Receive(t, lines, settle) // OK
	admin := server.Client(t)
	return func(right func(string) bool) {
		t.Helper()
		if err := admin.Set(t.Context(), "the end", 0, 0).Err(); err != nil {
			t.Fatal(err)
		}
		names := map[string]bool{}
		for {
			args := argsOf(redistest.Receive(t, lines, settle))
			if slices.Contains(args, "the end") {
				break
			}
			if len(args) == 0 || slices.Contains([]string{"acl", "hello", "client", "ping", "info", "multi", "exec", "time", "auth", "command"}, strings.ToLower(args[0])) {
				continue
			}
			if strings.ToLower(args[0]) == "publish" || strings.HasSuffix(strings.ToLower(args[0]), "subscribe") {
				names[args[1]] = true
				continue
			}
			keys, err := admin.CommandGetKeys(t.Context(), anys(args)...).Result()
			if err != nil && !strings.Contains(err.Error(), "no key arguments") {
				t.Errorf("%q: %v", args, err)
			}
			for _, name := range keys {
				names[name] = true
			}
		}
		if len(names) < 20 {
			t.Errorf("only %d names are seen", len(names))
		}
		for name := range names {
			if !right(name) {
				t.Errorf("a command has the name %q", name)
			}
		}
		all := admin.Keys(t.Context(), "*").Val()
		for _, name := range all {
			if name != "the end" && !right(name) {
				t.Errorf("there is a key %q", name)
			}
		}
		if log := admin.ACLLog(t.Context(), 9).Val(); len(log) > 0 {
			t.Errorf("a user was refused %+v", log[0])
		}
	}
}

// argsOf returns the arguments of a command that MONITOR has shown.
func argsOf(line string) (args []string) {
	_, rest, _ := strings.Cut(line, "] ")
	for rest != "" {
		var b strings.Builder
		i := 1
		for ; i < len(rest) && rest[i] != '"'; i++ {
			if rest[i] == '\\' {
				i++
			}
			b.WriteByte(rest[i])
		}
		args = append(args, b.String())
		rest = strings.TrimPrefix(rest[min(i+1, len(rest)):], " ")
	}
	return args
}

func anys(args []string) (all []any) {
	for _, arg := range args {
		all = append(all, arg)
	}
	return all
}

func TestAnotherNamespaceForTheSameTasksIsRefused(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	attached := func(name string) *attach.Attached {
		a, err := attach.New(server.Client(t), asynq.Config{LogLevel: asynq.FatalLevel}, attach.Options{Namespace: name})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = a.Close() })
		return a
	}
	for _, pair := range [][2]string{{"a", "b"}, {"", "a"}, {"b", ""}} {
		if err := server.Client(t).FlushDB(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		first := attached(pair[0])
		srv := asynq.NewServerFromRedisClient(first.Client(), first.Config())
		if err := srv.Start(asynq.HandlerFunc(func(context.Context, *asynq.Task) error { return nil })); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(srv.Shutdown)
		for end := time.Now().Add(settle); len(server.Client(t).Keys(t.Context(), "*railtoken:worker:*").Val()) == 0; {
			if time.Now().After(end) {
				t.Fatal("the first does not report")
			}
			<-time.After(10 * time.Millisecond)
		}
		err := attached(pair[1]).Check(t.Context())
		if separate, ok := errors.AsType[*attach.SeparateLocksError](err); !ok || separate.Queue != "default" {
			t.Errorf("%q beside %q: %v", pair[1], pair[0], err)
		}
		if err := attached(pair[0]).Check(t.Context()); err != nil {
			t.Errorf("%q beside itself: %v", pair[0], err)
		}
		srv.Shutdown()
	}
}

func TestOptionsOfANamespaceAreChecked(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := server.Client(t)
	single := func(name string) *locking.Single {
		l, err := locking.NewSingle(client, locking.SingleOptions{Namespace: name})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		return l
	}
	in, err := attach.Namespaced(client, "a", true)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	for want, o := range map[string]attach.Options{
		`has '{'`:                              {Namespace: "{a}"},
		"asynq's keys are to have a namespace": {NamespaceTasks: true},
		`has the namespace "b"`:                {Namespace: "a", Locker: single("b"), RedisKeys: single("b").RedisKeys},
		`has the namespace ""`:                 {Namespace: "a", Locker: single(""), RedisKeys: single("").RedisKeys},
		"":                                     {Namespace: "a", Locker: single("a"), RedisKeys: single("a").RedisKeys},
	} {
		a, err := attach.New(client, asynq.Config{}, o)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%+v gives %v, want %q", o.Namespace, err, want)
		}
		if err == nil {
			_ = a.Close()
		}
	}
	if _, err := attach.New(in, asynq.Config{}, attach.Options{Namespace: "b", NamespaceTasks: true}); err == nil || !strings.Contains(err.Error(), "already") {
		t.Errorf("a client of another namespace gives %v", err)
	}
	if same, err := attach.Namespaced(in, "a", true); err != nil || same != in {
		t.Errorf("a client of the same namespace gives %v", err)
	}
	if _, err := attach.Namespaced(client, "", true); err == nil {
		t.Error("an empty namespace is one")
	}
}
