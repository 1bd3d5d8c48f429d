package taskrun

import (
	"cmp"
	"errors"
	"fmt"
	"time"
)

// MaxTTL is above every TTL of a task's locks. asynq brings back the task of a crashed worker after 55 to 120 s, and
// its key must be free by then.
const MaxTTL = 55 * time.Second

// NotifyFor is how long a refused attempt subscribes to the release, beyond the time for which its task is parked. Each
// attempt subscribes again.
const NotifyFor = 2 * time.Minute

// The limits where none are set.
const (
	defaultKeys = 100
	defaultSize = 1024
)

// Limits limits the keys of a task, because a script with very many keys would block Redis for everyone.
type Limits struct {
	Keys int // 100 when zero
	Size int // length of a key in bytes; 1024 when zero
}

// Check returns the keys without duplicates, or an error that says what is wrong with them.
func (l Limits) Check(keys []string) ([]string, error) {
	keys = distinct(keys)
	if len(keys) == 0 {
		return nil, errors.New("the key function found no key: let it return at least one")
	}
	if most := cmp.Or(l.Keys, defaultKeys); len(keys) > most {
		return nil, fmt.Errorf("there are %d keys, more than the %d allowed: lock what they have in common, or raise MaxKeys",
			len(keys), most)
	}
	for _, key := range keys {
		if key == "" {
			return nil, errors.New("the key is empty, or a part that Key was given: is its field set in the payload?")
		}
		if most := cmp.Or(l.Size, defaultSize); len(key) > most {
			return nil, fmt.Errorf("the key has %d bytes, more than the %d allowed: lock a shorter name, or raise MaxKeySize",
				len(key), most)
		}
	}
	return keys, nil
}

// distinct returns the keys without duplicates.
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
