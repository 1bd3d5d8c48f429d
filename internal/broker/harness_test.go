package broker

import (
	"fmt"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/testing/redistest"
)

// patience bounds every wait for an event in real time.
const patience = 20 * time.Second

// scriptOf returns the SHA-1 and the keys of a command that runs a script by its SHA-1.
func scriptOf(cmd redis.Cmder) (sum string, keys []string, ok bool) {
	args := cmd.Args()
	if cmd.Name() != "evalsha" {
		return "", nil, false
	}
	sum, _ = args[1].(string)
	n, _ := args[2].(int)
	for _, key := range args[3 : 3+n] {
		name, _ := key.(string)
		keys = append(keys, name)
	}
	return sum, keys, true
}

// kindOf returns what a command is to asynq.
func kindOf(cmd redis.Cmder) Kind {
	sum, keys, _ := scriptOf(cmd)
	kind, _ := KindOf(sum, keys)
	return kind
}

// numbered returns so many queues: the default one, and others that have numbers.
func numbered(n int) map[string]int {
	queues := map[string]int{"default": 1}
	for i := 1; i < n; i++ {
		queues[fmt.Sprint(i)] = 1
	}
	return queues
}

// sumNamed returns the SHA-1 of asynq's script of a name.
func sumNamed(t *testing.T, name string) string {
	t.Helper()
	for sum, known := range scripts {
		if known == name {
			return sum
		}
	}
	t.Fatalf("no script is called %q", name)
	return ""
}

// newVirtual returns a fake Redis and a client of it that sends no call twice.
func newVirtual(t *testing.T) (*miniredis.Miniredis, *redis.Client) {
	t.Helper()
	m, _ := redistest.Virtual(t)
	return m, redistest.Patient(t, m)
}
