package locking

import (
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/namespace"
	"github.com/railtoken/railtoken/internal/rediswire"
)

// checkNamespace returns why a name is unfit for a namespace, or nil.
func checkNamespace(name string) error {
	if _, err := namespace.New(name, name != ""); err != nil {
		return fmt.Errorf("locking: %w", err)
	}
	return nil
}

// inNamespace returns a client in a namespace, whose name was checked. made says that the caller must close it.
func inNamespace(client redis.UniversalClient, name string) (in redis.UniversalClient, made bool, err error) {
	if name == "" || namespace.Of(client).Name == name { // with or without asynq's names, of which locks have none
		return client, false, nil
	}
	in, made, err = namespace.Client(client, namespace.Namespace{Name: name, Tasks: true})
	if err != nil {
		err = fmt.Errorf("locking: %w", err)
	}
	return in, made, err
}

// namespaceOf returns the name of the namespace of a Locker's locks; "" for none. ok is false if it is not known.
func namespaceOf(locker any) (name string, ok bool) {
	if l, is := locker.(interface{ namespace() (string, bool) }); is {
		return l.namespace()
	}
	return "", false
}

func (g *Gate) namespace() (string, bool)           { return namespaceOf(g.inner) }
func (f *followedLocker) namespace() (string, bool) { return namespaceOf(f.inner) }
func (s *Single) namespace() (string, bool)         { return namespace.Of(s.client).Name, true }

// untagged returns an error if a lock and its counter would be in different slots of a Redis Cluster, because only the prefix
// of the namespace makes the difference between their names.
func (s *Single) untagged(redisKeys []string) error {
	if s.usualKeys || !s.sharded || namespace.Of(s.client).IsZero() {
		return nil
	}
	for i := 0; i < len(redisKeys); i += 3 {
		if lock := redisKeys[i]; rediswire.Tag(lock) == lock {
			return fmt.Errorf("locking: RedisKey made %q: in a namespace on a Redis Cluster a name must have a hash tag, such as {%s}", lock, lock)
		}
	}
	return nil
}
