package items

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/railtoken/railtoken/internal/taskrun"
	"github.com/railtoken/railtoken/locking"
)

const (
	// maxWave is the maximum number of items of a task that have their keys at the same time. They are more than
	// Parallel only if items run briefly, so that their keys can be asked for together: as many as run within ahead, or
	// within aheadContended once another caller has wanted a key of this run.
	maxWave        = 64
	ahead          = 25 * time.Millisecond
	aheadContended = 5 * time.Millisecond
	// linger is how long the release of an item waits for other items to end, so that they are released together. It
	// waits up to lingerMost while no keys are to be asked for and no other caller wants a key of this run.
	linger     = time.Millisecond
	lingerMost = 5 * time.Millisecond
)

// wave returns the items whose keys to ask for now.
func (c *conductor) wave(ctx context.Context) (wave []int) {
	room := c.parallel - c.running - len(c.granted)
	if room <= 0 || len(c.todo) == 0 || c.halted(ctx) {
		return nil
	}
	if average := c.average.Load(); average > 0 && !c.inOrder {
		window := ahead
		if c.contended {
			window = aheadContended
		}
		room += int(min(int64(c.parallel)*int64(window)/average, maxWave))
	}
	room = min(room, max(maxWave, c.parallel)-c.running-len(c.granted))
	for len(c.todo) > 0 && len(wave) < room && !c.broken {
		i := c.todo[0]
		c.todo = c.todo[1:]
		if held := c.isHeld(i); held != nil {
			c.refuse(refusal{i, held, time.Now(), c.ran})
			continue
		}
		if key, busy := c.isBusy(i); busy {
			c.behind[key] = append(c.behind[key], i)
			continue
		}
		c.setBusy(i, true)
		wave = append(wave, i)
	}
	return wave
}

// isHeld returns the refusal that another item of this run has met for a key of this item, or nil.
func (c *conductor) isHeld(i int) *locking.HeldError {
	for _, key := range c.keys[i] {
		if held := c.held[key]; held != nil {
			return held
		}
	}
	return nil
}

// isBusy returns a key of an item that another item of this run holds.
func (c *conductor) isBusy(i int) (string, bool) {
	for _, key := range c.keys[i] {
		if c.busy[key] {
			return key, true
		}
	}
	return "", false
}

// setBusy notes that an item has its keys, or has released them. Items of this run that wait for a released key are
// next.
func (c *conductor) setBusy(i int, busy bool) {
	for _, key := range c.keys[i] {
		if busy {
			c.busy[key] = true
			continue
		}
		delete(c.busy, key)
		if waiting := c.behind[key]; len(waiting) > 0 {
			c.todo = append(slices.Clone(waiting), c.todo...)
			delete(c.behind, key)
		}
	}
}

// await waits until an item ends, and a moment longer for items that end at about the same time. It also saves results
// that are due.
func (c *conductor) await(ctx context.Context) {
	for len(c.settle) == 0 {
		var due <-chan time.Time
		if len(c.store.unsaved) > 0 {
			due = time.After(time.Until(c.store.since.Add(saveEvery)))
		}
		select {
		case end := <-c.ended:
			c.settle = append(c.settle, end)
			c.running--
		case <-due:
			c.saveSoon(ctx)
		}
	}
	began, limit := time.Now(), time.NewTimer(linger)
	defer limit.Stop()
	for c.start(ctx); c.running > 0; c.start(ctx) {
		select {
		case end := <-c.ended:
			c.settle = append(c.settle, end)
			c.running--
			continue
		case <-limit.C:
		}
		hasRoom := c.running < c.parallel && len(c.todo) > 0
		if c.contended || hasRoom || time.Since(began) >= lingerMost {
			return
		}
		limit.Reset(linger)
	}
}

// turn releases the keys of items that have ended and asks for those of a wave, all at the same time, so that the calls
// to the lock servers are batched.
func (c *conductor) turn(ctx context.Context, wave []int) {
	settled := c.settle
	c.settle = nil
	lost := make([]error, len(settled))
	answers := make([]struct {
		keys taskrun.Item
		held *locking.HeldError
		err  error
	}, len(wave))
	var all sync.WaitGroup
	for n, end := range settled {
		if end.keys != nil {
			all.Go(func() { lost[n] = end.keys.Release(ctx, end.ran && end.err == nil && ctx.Err() == nil) })
		}
	}
	if c.policy != Whole {
		for n, i := range wave {
			all.Go(func() { answers[n].keys, answers[n].held, answers[n].err = c.run.Acquire(ctx, c.keys[i]) })
		}
	}
	all.Wait()
	for n, end := range settled {
		if end.keys != nil {
			lease := end.keys.Lease()
			c.contended = c.contended || lease.ShouldNotify() || lease.HandedOff()
		}
		c.setBusy(end.index, false)
		c.judge(ctx, end, lost[n])
	}
	var failed error
	for n, i := range wave {
		switch a := answers[n]; {
		case a.held != nil:
			c.setBusy(i, false)
			c.refuse(refusal{i, a.held, time.Now(), c.ran})
		case a.err != nil:
			c.setBusy(i, false)
			c.todo = append([]int{i}, c.todo...)
			failed = a.err
		default:
			c.granted = append(c.granted, locked{i, a.keys})
		}
	}
	if failed != nil || c.away && len(wave) > 0 {
		c.away = failed != nil
		c.err = c.run.AwaitRedis(ctx, failed)
	}
}

// refuse notes that an item was refused a key.
func (c *conductor) refuse(r refusal) {
	c.refused = append(c.refused, r)
	c.held[r.held.Key] = r.held
	c.contended = true
	c.broken = c.broken || c.inOrder
}

// again lists those refused items for another try that were refused before another item ended, and reports whether
// there are any.
func (c *conductor) again() bool {
	if c.broken || c.err != nil {
		return false
	}
	var once []refusal
	for _, r := range c.refused {
		if c.ran > r.ran {
			c.todo = append(c.todo, r.index)
		} else {
			once = append(once, r)
		}
	}
	again := len(once) < len(c.refused)
	c.refused = once
	if again {
		clear(c.held)
	}
	return again && len(c.todo) > 0
}
