package middleware

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/hibiken/asynq"
)

// The longest key in bytes, and the most keys of a task, that are accepted unless [Options] says otherwise.
const (
	DefaultMaxKeySize = 1024
	DefaultMaxKeys    = 100
)

// keyLimits bounds what a task may lock: a script over very many keys would stop Redis for everyone.
type keyLimits struct{ count, size int }

// KeyFunc finds the business keys of a task: the names of what no other task may work on at the same time. An error, no key
// at all or an empty key archives the task; make keys with [Key], so that none is half empty. It is called by many goroutines at the same time and must not keep the task.
type KeyFunc func(ctx context.Context, task *asynq.Task) ([]string, error)

// Key returns the key of a thing, for example "order:1042" for Key("order", "1042"): the kind and the parts of its name with colons between.
// It is empty when one of them is, so that the task is archived with a [KeyError]: "order:" would be the key of every task whose payload
// lacks the number, and let one of them run at a time.
func Key(kind string, parts ...string) string {
	if kind == "" || slices.Contains(parts, "") {
		return ""
	}
	return strings.Join(append([]string{kind}, parts...), ":")
}

// PayloadKey returns a KeyFunc that decodes the task's payload from JSON and finds one key in it.
func PayloadKey[T any](key func(T) string) KeyFunc {
	return PayloadKeys(func(payload T) []string { return []string{key(payload)} })
}

// PayloadKeys returns a KeyFunc that decodes the task's payload from JSON and finds several keys in it, all of which are
// locked together or not at all.
func PayloadKeys[T any](keys func(T) []string) KeyFunc {
	return func(_ context.Context, task *asynq.Task) ([]string, error) {
		var payload T
		if err := json.Unmarshal(task.Payload(), &payload); err != nil {
			return nil, fmt.Errorf("the payload is not the JSON of a %T: %w", payload, err)
		}
		return keys(payload), nil
	}
}

// HeaderKey returns a KeyFunc that takes the key from a header of the task (asynq.NewTaskWithHeaders).
func HeaderKey(name string) KeyFunc {
	return func(_ context.Context, task *asynq.Task) ([]string, error) {
		key, ok := task.Headers()[name]
		if !ok {
			return nil, fmt.Errorf("the task has no header %q: set it with asynq.NewTaskWithHeaders", name)
		}
		return []string{key}, nil
	}
}

// FixedKey returns a KeyFunc that gives every task the same keys: one task of the kind at a time.
func FixedKey(keys ...string) KeyFunc {
	return func(context.Context, *asynq.Task) ([]string, error) { return keys, nil }
}

// keysOf returns the keys of a task, or a [KeyError].
func keysOf(ctx context.Context, find KeyFunc, task *asynq.Task, limits keyLimits) ([]string, error) {
	keys, err := find(ctx, task)
	if err == nil {
		keys = distinct(keys)
		err = limits.check(keys)
	}
	if err != nil {
		return nil, &KeyError{Type: task.Type(), Err: err}
	}
	return keys, nil
}

// distinct returns the keys without those that are named twice.
func distinct(keys []string) []string {
	seen, once := map[string]bool{}, make([]string, 0, len(keys))
	for _, key := range keys {
		if !seen[key] {
			seen[key] = true
			once = append(once, key)
		}
	}
	return once
}

// check returns what is wrong with the keys of a task, or nil.
func (l keyLimits) check(keys []string) error {
	if len(keys) == 0 {
		return errors.New("the key function found no key: let it return at least one")
	}
	if len(keys) > l.count {
		return fmt.Errorf("there are %d keys, more than the %d allowed: lock what they have in common, or raise MaxKeys", len(keys), l.count)
	}
	for _, key := range keys {
		if key == "" {
			return errors.New("the key is empty, or a part that Key was given: is its field set in the payload?")
		}
		if len(key) > l.size {
			return fmt.Errorf("the key has %d bytes, more than the %d allowed: lock a shorter name, or raise MaxKeySize", len(key), l.size)
		}
	}
	return nil
}
