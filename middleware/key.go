package middleware

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/internal/taskrun"
)

// KeyFunc returns the business keys of a task: the names of things that no other task may work on at the same time. If
// it returns an error, no key or an empty key, the task is archived. Make keys with [Key], which returns an empty key
// if a part is missing. A KeyFunc must be safe for concurrent use and must not retain the task.
//
// The KeyFuncs that [PayloadKey], [PayloadKeys], [HeaderKey] and [FixedKey] return are called before the run of a task,
// too: the locks of all tasks of a fetch are then taken in one call. Another KeyFunc is called in the run alone, with its
// context, and each run locks its keys in a call of its own.
type KeyFunc func(ctx context.Context, task *asynq.Task) ([]string, error)

// Key returns the key of a thing, for example "order:1042" for Key("order", "1042"): its kind and the parts of its
// name, joined by colons. The key is empty if any of them is, so that the task is archived with a [KeyError]. Otherwise
// "order:" would be the key of every task whose payload lacks the number. Parts are not escaped: Key("order", "a:b") is
// also Key("order", "a", "b").
func Key(kind string, parts ...string) string {
	if kind == "" || slices.Contains(parts, "") {
		return ""
	}
	return strings.Join(append([]string{kind}, parts...), ":")
}

// PayloadKey returns a KeyFunc that decodes the payload of a task from JSON and returns one key from it. It
// panics if key is nil.
func PayloadKey[T any](key func(T) string) KeyFunc {
	if key == nil {
		panic("middleware: PayloadKey needs a function")
	}
	return PayloadKeys(func(payload T) []string { return []string{key(payload)} })
}

// PayloadKeys returns a KeyFunc that decodes the payload of a task from JSON and returns several keys from it. They are
// locked together or not at all. PayloadKeys panics if keys is nil.
func PayloadKeys[T any](keys func(T) []string) KeyFunc {
	if keys == nil {
		panic("middleware: PayloadKeys needs a function")
	}
	return taskrun.KnownEarly(func(_ context.Context, task *asynq.Task) ([]string, error) {
		var payload T
		if err := json.Unmarshal(task.Payload(), &payload); err != nil {
			return nil, fmt.Errorf("the payload is not the JSON of a %T: %w", payload, err)
		}
		return keys(payload), nil
	})
}

// HeaderKey returns a KeyFunc that takes the key from a header of the task (asynq.NewTaskWithHeaders). It
// panics if name is empty.
func HeaderKey(name string) KeyFunc {
	if name == "" {
		panic("middleware: HeaderKey needs the name of a header")
	}
	return taskrun.KnownEarly(func(_ context.Context, task *asynq.Task) ([]string, error) {
		key, ok := task.Headers()[name]
		if !ok {
			return nil, fmt.Errorf("the task has no header %q: set it with asynq.NewTaskWithHeaders", name)
		}
		return []string{key}, nil
	})
}

// FixedKey returns a KeyFunc that returns the same keys for every task, so that only one of these tasks runs at a time.
// It panics if there is no key, or an empty one.
func FixedKey(keys ...string) KeyFunc {
	if len(keys) == 0 || slices.Contains(keys, "") {
		panic("middleware: FixedKey needs at least one key, and no empty one")
	}
	return taskrun.KnownEarly(func(context.Context, *asynq.Task) ([]string, error) { return keys, nil })
}

// keysOf returns the keys of a task, or a [KeyError].
func keysOf(ctx context.Context, find KeyFunc, task *asynq.Task, limits taskrun.Limits) ([]string, error) {
	keys, err := find(ctx, task)
	if err == nil {
		keys, err = limits.Check(keys)
	}
	if err != nil {
		return nil, &KeyError{Type: task.Type(), Err: err}
	}
	return keys, nil
}
