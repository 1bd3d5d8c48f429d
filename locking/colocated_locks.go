package locking

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/colocated"
	"github.com/railtoken/railtoken/internal/lockwire"
)

// colocatedLocks are the locks of a Single, behind a Gate or not, as the scripts of tasks use them: see [colocated.Locks].
type colocatedLocks struct {
	single *Single
	gate   *Gate // may be nil
}

func (s *Single) colocated() (f colocatedLocks, ok bool) {
	_, plain := s.client.(*redis.Client)
	return colocatedLocks{single: s}, (plain || s.lanes > 0) && s.usualKeys
}

func (g *Gate) colocated() (f colocatedLocks, ok bool) {
	s, ok := g.inner.(*Single)
	if !ok {
		return f, false
	}
	f, ok = s.colocated()
	f.gate = g
	return f, ok
}

// Ask returns what a call needs that may take locks.
func (f colocatedLocks) Ask() colocated.Ask {
	block := 1
	if f.gate != nil {
		block = f.gate.block
	}
	began := f.single.suspension.now()
	owner := began.owner(f.single.label+"/", block)
	return colocated.Ask{
		ID: owner[:lockwire.IDSize-3], Tail: owner[lockwire.IDSize:], Floor: -f.single.clock.Last(),
		FenceTTL: f.single.fenceTTL, Block: block, Began: began.watch, Lapses: began.lapses, Worker: began.worker,
	}
}

// adopt makes a Lease of keys that a script has taken.
func (f colocatedLocks) adopt(ctx context.Context, t *colocated.Taken, opts Options) (*Lease, error) {
	opts, began := opts.withDefaults(), instant{t.Ask.Began, &f.single.suspension, t.Ask.Lapses, t.Ask.Worker}
	if opts.TTL != t.TTL {
		return nil, errors.New("locking: the keys were taken with another TTL")
	}
	if err := opts.outlives(f.single.fenceTTL); err != nil {
		return nil, err
	}
	grant, err := f.grant(t)
	if err != nil {
		return nil, err
	}
	see(&f.single.clock, t.Tops, f.single.fenceTTL)
	if f.gate != nil {
		return f.gate.adopt(ctx, grant, t.Keys, opts, began)
	}
	return newLease(ctx, grant, t.Keys, opts, began)
}

// grant returns the grant of keys that a script has taken.
func (f colocatedLocks) grant(t *colocated.Taken) (*singleGrant, error) {
	redisKeys, err := lockwire.RedisKeys(t.Keys, f.single.lockKey)
	if err != nil {
		return nil, err
	}
	for _, top := range t.Tops {
		if top >= tokenLimit {
			return nil, errTokens
		}
	}
	return &singleGrant{
		single: f.single, owner: t.Owner, block: t.Ask.Block, ttl: t.TTL, tops: t.Tops,
		parts: []part{{keys: t.Keys, redisKeys: redisKeys}},
	}, nil
}

// adopt makes a lease of a grant that a script has got, for keys of which no caller of this process has a lease.
func (g *Gate) adopt(
	ctx context.Context, grant *singleGrant, keys []string, opts Options, began instant,
) (*Lease, error) {
	g.supersede(keys)
	h, _ := g.tryHold(keys, opts)
	if h == nil {
		return nil, errors.New("locking: another caller of this process has the key, or asks for it")
	}
	lease, err := newLease(ctx, grant, keys, opts, began)
	g.mu.Lock()
	defer g.mu.Unlock()
	h.opts = opts
	if err != nil {
		h.err = err
		g.free(h, nil)
		return nil, err
	}
	h.lease, h.left = lease, min(grant.block, g.block)-1
	close(h.ready)
	lease.setHolder(h)
	return lease, nil
}

// Refusal turns a script's refusal into a HeldError. If another task is to have the key first, the reply ends with a label
// that stands for its holder.
func (colocatedLocks) Refusal(keys []string, reply any) error {
	list, _ := reply.([]any)
	label := ""
	if len(list) == 6 {
		label, _ = list[5].(string)
		reply = list[:5]
	}
	_, held, _, err := parseAcquire(reply, keys)
	if held != nil && label != "" {
		held.Holder.Label = label
	}
	if err == nil && held == nil {
		err = badReply(reply)
	}
	if err != nil {
		return err
	}
	return held
}

// Release returns the release of keys that a script has taken and nobody has adopted.
func (f colocatedLocks) Release(t *colocated.Taken) *colocated.Release {
	grant, err := f.grant(t)
	if err != nil {
		failed := func(context.Context, bool) (colocated.Outcome, error) { return colocated.Outcome{}, err }
		return colocated.NewRelease(nil, t.Owner, nil, failed)
	}
	return grant.scriptedRelease()
}

// scriptedRelease returns the release of a grant in one part, for a script to carry out.
func (g *singleGrant) scriptedRelease() *colocated.Release {
	p := g.parts[0]
	return colocated.NewRelease(p.redisKeys, g.owner, g.tops, func(ctx context.Context, sent bool) (colocated.Outcome, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
		defer cancel()
		reply, err := g.sendRelease(ctx, p, g.tops)
		if err != nil {
			return colocated.Outcome{Notify: true, Parked: true}, &OpError{Op: "release", Keys: p.keys, Err: err}
		}
		if sent { // what has become of the keys since proves nothing
			reply.lost = 0
		}
		return colocated.Outcome{Lost: reply.lost, Notify: reply.notify, Parked: reply.notify}, nil
	})
}

// deferRelease ends the lease as Release does, and leaves the call to the server to what it returns: nil when the lease
// is lost or is released already. A lease that was handed off stays locked. Until the call is answered or late, the Gate takes
// the keys for held: while Redis cannot be reached, callers must learn that, and not wait for a holder.
func (l *Lease) deferRelease(grant *singleGrant, done func(colocated.Outcome, error)) (deferred *colocated.Release) {
	if l.Err() != nil {
		return nil
	}
	l.release.Do(func() {
		holder := l.heldBy()
		ended, lost := l.beginRelease(holder)
		switch {
		case !ended: // the hold is the next holder's
			deferred, holder = grant.keptRelease(), nil
			deferred.HandsOff = l.offset+2 < int64(grant.block) // the next one may hand it off again
		case holder == nil:
			deferred = grant.scriptedRelease()
		default:
			deferred = grant.scriptedRelease()
			deferred.Awaited, deferred.HandsOff = holder.releasing(), grant.block > 1
			deferred.IfLate(func() { holder.released(l, true) })
		}
		deferred.Then(func(o colocated.Outcome, err error) {
			refused := holder != nil && holder.released(l, o.Notify || err != nil) // since the script was sent
			l.notify.Store(o.Parked || refused || err != nil)                      // what else waits was notified
			if err == nil && o.Lost > 0 {
				err = &LostError{Keys: l.keys[o.Lost-1 : o.Lost], Reason: LossTaken}
			}
			done(o, err)
		})
		l.releaseErr = lost
	})
	return deferred
}

// keptRelease returns what a script does with keys that were handed off: it releases none, and nothing else must.
func (g *singleGrant) keptRelease() *colocated.Release {
	r := colocated.NewRelease(g.parts[0].redisKeys, g.owner, g.tops, func(context.Context, bool) (colocated.Outcome, error) {
		return colocated.Outcome{}, nil
	})
	r.Kept = true
	return r
}
