package attach

import (
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/namespace"
	"github.com/railtoken/railtoken/locking"
)

// Namespaced returns a client of the same Redis that puts a namespace before the name of each key and channel, and takes it
// from the replies and messages that have such names in them. With "shop-a", what is railtoken:workers to the caller is
// shop-a:railtoken:workers in Redis. asynq's names have the prefix only if tasks is true. Payloads, and all else that Redis
// keeps under the names, are left alone. A namespace has up to 64 letters, digits, '-', '_' and '.'.
//
// Servers and producers have [Options].Namespace instead. This client is for what else looks at their tasks and locks:
// delayqueue.New, inspect.Options, admin.Options and, if the tasks have the namespace, asynq's Inspector, Client, Scheduler
// and asynqmon, by their constructors that take a client. Each must have the namespace of the servers.
//
// The client has connections of its own: close it. Hooks of the given client are not called. It works with a standalone
// Redis, a master behind Sentinel and a Redis Cluster, and with scripts. Redis refuses, with an error that says so, commands
// whose names are not known, that have names beside contents in their replies (BLPOP, XREAD), or that reach beyond the
// namespace (FLUSHDB, FCALL).
func Namespaced(client redis.UniversalClient, name string, tasks bool) (redis.UniversalClient, error) {
	if name == "" {
		return nil, fmt.Errorf("attach: the namespace is empty: name one, such as %q", "shop-a")
	}
	in, _, err := namespaced(client, name, tasks)
	return in, err
}

// namespaced returns a client in a namespace. made says that the caller must close it.
func namespaced(client redis.UniversalClient, name string, tasks bool) (in redis.UniversalClient, made bool, err error) {
	n, err := namespace.New(name, tasks)
	if err == nil {
		in, made, err = namespace.Client(client, n)
	}
	if err != nil {
		return nil, false, fmt.Errorf("attach: %w", err)
	}
	return in, made, nil
}

// sameNamespace returns an error if the locks of a Locker are said to be on the Redis of the tasks, but have other names there than
// the scripts of the tasks use.
func sameNamespace(client redis.UniversalClient, locker locking.Locker, redisKeys func(string) (string, string)) error {
	if locker == nil || redisKeys == nil {
		return nil
	}
	has, ok := locks.Namespace(locker)
	if want := namespace.Of(client).Name; ok && has != want {
		return fmt.Errorf("attach: the Locker has the namespace %q, and the tasks beside it have %q: set Namespace of "+
			"locking.SingleOptions to that of the tasks, or leave out RedisKeys if the locks are elsewhere", has, want)
	}
	return nil
}
