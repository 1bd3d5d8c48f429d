package locking_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/rediswire"
	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/locking"
)

// keysOn returns n business keys that lie on node i of a cluster of that many nodes, in ascending order. They begin
// with prefix.
func keysOn(i, nodes, n int, prefix string) []string {
	var found []string
	for j := 100; len(found) < n; j++ {
		key := prefix + strconv.Itoa(j)
		if slot := rediswire.Slot(key); i*16384/nodes <= slot && slot < (i+1)*16384/nodes {
			found = append(found, key)
		}
	}
	return found
}

func TestSeveralKeysOnACluster(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3)
	clientFor := func(t *testing.T) *redis.ClusterClient {
		return cluster.Client(t, func(o *redis.ClusterOptions) { o.ContextTimeoutEnabled = true })
	}
	lockerFor := func(t *testing.T) *locking.Single { return newSingle(t, clientFor(t), locking.SingleOptions{}) }

	t.Run("ARefusalOfOneLeavesNothingOfTheOthers", func(t *testing.T) {
		a, b := lockerFor(t), lockerFor(t)
		one, two, three := keysOn(0, 3, 1, "1/")[0], keysOn(1, 3, 1, "2/")[0], keysOn(2, 3, 1, "3/")[0]
		for _, taken := range []string{one, two, three} {
			lease := acquire(t, a, locking.Options{}, taken)
			refused(t, b, one, two, three)
			for _, key := range []string{one, two, three} {
				if n := clientFor(t).Exists(t.Context(), "railtoken:lock:{"+key+"}").Val(); (n == 1) != (key == taken) {
					t.Errorf("%q was taken; of %q there are %d locks", taken, key, n)
				}
			}
			release(t, lease)
		}
		release(t, acquire(t, b, locking.Options{}, one, two, three))
	})

	t.Run("NamesWithoutABraceKeepTheirFenceBesideThem", func(t *testing.T) {
		plain := func(key string) string { return "lock:" + key }
		l := newSingle(t, clientFor(t), locking.SingleOptions{RedisKey: plain})
		lease := acquire(t, l, locking.Options{}, "one", "two", "three")
		refused(t, l, "two")
		release(t, lease)
	})

	t.Run("WhatCanBeReachedIsTakenBack", func(t *testing.T) {
		client := clientFor(t)
		silenced := &silence{}
		client.AddHook(silenced)
		l := newSingle(t, client, locking.SingleOptions{})
		gone := keysOn(0, 3, 2, "take/")
		other := keysOn(1, 3, 1, "take/b")
		first, last := "railtoken:lock:{"+gone[0]+"}", "railtoken:lock:{"+"take/c"+"}"
		silenced.after(last, first, last) // node 0 is lost to this client once it was asked for the last key
		defer silenced.after("")          // until the end: what is taken back is tried again for minutes
		lease, err := l.Acquire(t.Context(), []string{gone[0], other[0], "take/c"}, locking.Options{})
		if lease != nil {
			t.Error("acquired")
		}
		isClear(t, err, `acquire ["take/c"]`, errSilence.Error())
		release(t, acquire(t, lockerFor(t), locking.Options{}, other[0]))
	})

	t.Run("ANodeThatDoesNotAnswerKeepsNoOtherKeysLocked", func(t *testing.T) {
		a, b := lockerFor(t), lockerFor(t)
		one, two := keysOn(0, 3, 1, "1/")[0], keysOn(1, 3, 1, "2/")[0]
		release(t, acquire(t, b, locking.Options{}, two))
		lease := acquire(t, a, locking.Options{}, one, two)
		cluster.Nodes()[0].Pause()
		defer cluster.Nodes()[0].Resume()
		err := lease.Release(t.Context())
		isClear(t, err, fmt.Sprintf("release [%q]", one))
		release(t, acquire(t, b, locking.Options{}, two))
	})
}

var errSilence = errors.New("no answer from this node")

// silence is a hook of a client to which some keys' node is lost after a certain command.
type silence struct {
	mu      sync.Mutex
	trigger string
	lost    map[string]bool
	now     bool
}

// after loses the node of the keys, beginning with the next command for trigger.
func (s *silence) after(trigger string, keys ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trigger, s.lost, s.now = trigger, map[string]bool{}, false
	for _, key := range keys {
		s.lost[key] = true
	}
}

func (s *silence) DialHook(next redis.DialHook) redis.DialHook { return next }

func (s *silence) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (s *silence) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		s.mu.Lock()
		for _, arg := range cmd.Args() {
			key, _ := arg.(string)
			s.now = s.now || key != "" && key == s.trigger
			if s.now && s.lost[key] {
				s.mu.Unlock()
				cmd.SetErr(errSilence)
				return errSilence
			}
		}
		s.mu.Unlock()
		return next(ctx, cmd)
	}
}
