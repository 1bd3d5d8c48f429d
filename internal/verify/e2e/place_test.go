package e2e_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/attach"
	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/worker"
)

// suiteNamespace is where all these tests run when it is set: each process that works or produces is a user of Redis that may use no
// other names, and beside it a neighbour works with the same queues and keys on the same server.
var suiteNamespace = flag.String("namespace", "", "`name` before all names in Redis; neighbours with the same queues and keys are beside")

// neighbourhood is the namespace of the neighbours.
const neighbourhood = "neighbour"

// startShared starts a server for tasks or locks.
func startShared(t *testing.T, args ...string) *redistest.Server {
	t.Helper()
	if *suiteNamespace == "" {
		return redistest.Start(t, args...)
	}
	s := redistest.Start(t, append(args, append([]string{"--user", *suiteNamespace}, ownNames(*suiteNamespace)...)...)...)
	share(t, s.Client(t))
	return s
}

// share makes a neighbour of a test that runs in a namespace, and checks the names at its end. The servers must have the user.
func share(t *testing.T, root redis.UniversalClient) {
	t.Helper()
	if *suiteNamespace == "" {
		return
	}
	moveIn(t, root)
	t.Cleanup(func() {
		err := eachMaster(context.Background(), root, func(ctx context.Context, node *redis.Client) error {
			for _, name := range node.Keys(ctx, "*").Val() {
				if !strings.HasPrefix(name, *suiteNamespace+":") && !strings.HasPrefix(name, neighbourhood+":") {
					t.Errorf("%s is in no namespace", name)
				}
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
}

// admit makes the user of the namespace on servers that are not restarted.
func admit(t *testing.T, servers ...*redistest.Server) {
	t.Helper()
	for _, s := range servers {
		if *suiteNamespace != "" {
			setUser(t, s.Client(t), *suiteNamespace)
		}
	}
}

// setUser makes a user with the name and password of a namespace.
func setUser(t *testing.T, root *redis.Client, namespace string) {
	t.Helper()
	args := []any{"ACL", "SETUSER", namespace}
	for _, rule := range ownNames(namespace) {
		args = append(args, rule)
	}
	if err := root.Do(t.Context(), args...).Err(); err != nil {
		t.Fatal(err)
	}
}

// ownNames are the rules of a user who may use the names of a namespace alone. Its password is the namespace.
func ownNames(namespace string) []string {
	return []string{"on", ">" + namespace, "~" + namespace + ":*", "&" + namespace + ":*", "+@all", "-@dangerous", "+info", "+keys"}
}

// at is how workers and producers connect to a server.
func at(s *redistest.Server) worker.Redis { return inNamespace(worker.Redis{Addr: s.Addr()}) }

// inNamespace adds the namespace of the tests and its user, if any.
func inNamespace(r worker.Redis) worker.Redis {
	if *suiteNamespace != "" {
		r.Namespace, r.NamespaceTasks = *suiteNamespace, true
		r.Username, r.Password = *suiteNamespace, worker.Secret(*suiteNamespace)
	}
	return r
}

// namespaceVariables are inNamespace in the environment of a child.
func namespaceVariables(namespace string) []string {
	if namespace == "" {
		return nil
	}
	return []string{
		"RAILTOKEN_NAMESPACE=" + namespace, "RAILTOKEN_NAMESPACE_TASKS=true", "RAILTOKEN_REDIS_USERNAME=" + namespace,
		"RAILTOKEN_REDIS_PASSWORD=" + namespace,
	}
}

// named is the client with which a test looks at its own tasks and locks.
func named(t *testing.T, client redis.UniversalClient) redis.UniversalClient {
	t.Helper()
	if *suiteNamespace == "" {
		return client
	}
	in, err := attach.Namespaced(client, *suiteNamespace, true)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = in.Close() })
	return in
}

// moveIn starts a worker in the other namespace, and a producer of tasks for it, until the end of the test. No other tasks may reach it,
// and a task of its own that reached a worker of the test would show among the effects there.
func moveIn(t *testing.T, client redis.UniversalClient) {
	t.Helper()
	queues := map[string]int{"default": 1, "audit": 1, "allocate": 1}
	rt, err := attach.New(client, asynq.Config{
		Concurrency: 2, Queues: queues, LogLevel: asynq.FatalLevel, ShutdownTimeout: time.Second,
	}, attach.Options{Namespace: neighbourhood, NamespaceTasks: true})
	if err != nil {
		t.Fatal(err)
	}
	first := make(chan struct{})
	hasRun := sync.OnceFunc(func() { close(first) })
	server := asynq.NewServerFromRedisClient(rt.Client(), rt.Config())
	err = server.Start(rt.Lock(orderKey)(asynq.HandlerFunc(func(_ context.Context, task *asynq.Task) error {
		var o order
		if err := json.Unmarshal(task.Payload(), &o); err != nil || o.Task != neighbourhood {
			t.Errorf("%s has reached the neighbour", task.Payload())
		}
		hasRun()
		return nil
	})))
	if err != nil {
		t.Fatal(err)
	}
	producer, err := attach.NewProducer(client, attach.ProducerOptions{Namespace: neighbourhood, NamespaceTasks: true})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var producing sync.WaitGroup
	producing.Go(func() {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for n := 0; ; n++ {
			for queue := range queues {
				task := asynq.NewTask("work", fmt.Appendf(nil, `{"order":"order:%d","task":"%s"}`, n%5, neighbourhood))
				_, _ = producer.EnqueueContext(ctx, task, asynq.Queue(queue)) // the server may be away
			}
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	})
	t.Cleanup(func() {
		select { // the test may be shorter than the way to the first run
		case <-first:
		case <-time.After(limit):
			t.Error("the neighbour has run no task")
		}
		cancel()
		producing.Wait()
		rt.Stop()
		server.Shutdown()
		_ = rt.Close()
		_ = producer.Close()
	})
}

// fromEnvironment is where a child connects, and a client there that sees the names of its namespace.
func fromEnvironment() (worker.Redis, redis.UniversalClient, error) {
	cfg, err := worker.FromEnv()
	if err != nil {
		return worker.Redis{}, nil, err
	}
	return cfg.Redis, cfg.Redis.Connect(), nil
}
