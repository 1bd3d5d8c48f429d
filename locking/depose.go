package locking

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/railtoken/railtoken/internal/leasing"
	"github.com/railtoken/railtoken/internal/lockaccess"
	"github.com/railtoken/railtoken/internal/lockwire"
	"github.com/railtoken/railtoken/internal/pipeline"
	"github.com/railtoken/railtoken/internal/quorum"
	"github.com/railtoken/railtoken/internal/restartguard"
)

var (
	deposeScript       = pipeline.NewScript(lockwire.Depose)
	strictDeposeScript = pipeline.NewScript(restartguard.Script(strictCheck + lockwire.Depose))
)

// deposedChannel is the channel in which depositions are published, with the name of the deposed owner.
const deposedChannel = "railtoken:deposed"

// deposeCommand returns the call that takes a key away from its owner. owner is that of the Depose.
func deposeCommand(
	script *pipeline.Script, redisKeys []string, owner string, fenceTTL time.Duration, proposal int64, opts Options,
	r lockaccess.Request,
) (pipeline.Command, error) {
	notice, err := json.Marshal(&lockwire.Record{By: r.By, Why: r.Why, Mark: r.Mark})
	if err != nil {
		return pipeline.Command{}, err
	}
	c := script.Command(append(slices.Clone(redisKeys), lockwire.RecordKey(redisKeys[1], r.Expect)), 10)
	c.Add(owner, ms(opts.TTL), ms(fenceTTL), proposal)
	c.Add(r.Expect, r.Mark, string(notice), ms(lockwire.RecordLifetime), int64(lateness/time.Second), deposedChannel)
	return c, nil
}

// takeOptions returns the options of the lease of a Depose.
func takeOptions(r lockaccess.Request, fenceTTL time.Duration) Options {
	return Options{TTL: r.TTL, MaxHold: max(r.TTL, fenceTTL/2), Label: r.Label}.withDefaults()
}

// takeOver takes a key away from its owner. A call without an answer is repeated while ctx lasts, and never given back:
// the key must not be free before the resource refuses its owner. An error says what the caller knows.
func (s *Single) takeOver(ctx context.Context, r lockaccess.Request) (*Lease, error) {
	keys, opts := []string{r.Key}, takeOptions(r, s.fenceTTL)
	parts, err := s.parts(keys)
	if err != nil {
		return nil, err
	}
	began := s.suspension.now()
	p := &parts[0]
	g := &singleGrant{
		single: s, owner: began.owner(lockwire.CleanLabel(r.Label), 1), block: 1,
		ttl: opts.TTL, parts: parts,
	}
	p.acquire = acquireCommand(acquireScript, p.redisKeys, g.owner, s.fenceTTL, -s.clock.Last(), opts, false)
	command, err := deposeCommand(deposeScript, p.redisKeys, g.owner, s.fenceTTL, -s.clock.Last(), opts, r)
	if err != nil {
		return nil, err
	}
	pauses := newRetryPauses()
	var reply any
	for {
		began.watch = s.suspension.now().watch
		reply, err = s.server.Run(ctx, new(pipeline.Call).Of(command, 0, nil))
		if err == nil || outcomeOf(err) != unknown || ctx.Err() != nil || !sleep(ctx, pauses.NextBackOff(), nil) {
			break
		}
	}
	if err != nil {
		return nil, &OpError{Op: "depose", Keys: keys, Err: classify(ctx, err)}
	}
	tops, held, _, err := parseAcquire(reply, keys)
	switch {
	case err != nil:
		return nil, &OpError{Op: "depose", Keys: keys, Err: err}
	case held != nil:
		return nil, held
	}
	g.tops = tops
	see(&s.clock, tops, s.fenceTTL)
	return newLease(ctx, g, keys, opts, began)
}

// takeOver takes a key away from its owner on a majority of the nodes. After an error, the key may be taken on some
// nodes, and stays so until the TTL ends: if it became free there, another caller could get a majority with them while
// the owner, who has just lost its own, does not know that yet. It is given back only if other owners have so many
// nodes that this one cannot have a majority.
func (r *Redlock) takeOver(ctx context.Context, request lockaccess.Request) (*Lease, error) {
	request.TTL = min(request.TTL, r.opts.MaxTTL)
	keys, opts := []string{request.Key}, takeOptions(request, r.opts.FenceTTL)
	redisKeys, err := lockwire.RedisKeys(keys, r.opts.RedisKey)
	if err != nil {
		return nil, err
	}
	opts.Label = lockwire.CleanLabel(opts.Label)
	began := r.suspension.now()
	g := newRedlockGrant(r, keys, redisKeys, opts)
	script := deposeScript
	if r.opts.Guard == GuardStrict {
		script = strictDeposeScript
	}
	last := r.clock.Propose(time.Now().UnixMicro(), int64(opts.block))
	if g.takeOver, err = deposeCommand(script, redisKeys, g.owner, r.opts.FenceTTL, last, opts, request); err != nil {
		return nil, err
	}
	if _, err := g.acquire(ctx); err != nil {
		if g.elsewhere() > len(g.nodes)-quorum.Of(len(g.nodes)) {
			g.abandon()
		}
		return nil, err
	}
	return newLease(ctx, g, keys, opts, began)
}

// elsewhere returns on how many nodes another owner has the lock.
func (g *redlockGrant) elsewhere() (n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for i := range g.nodes {
		if g.rules.Elsewhere(i) {
			n++
		}
	}
	return n
}

// takeOver takes a key away from its owner, whatever callers of this process wait for it.
func (g *Gate) takeOver(ctx context.Context, r lockaccess.Request) (*Lease, error) {
	return takeOver(ctx, g.inner, r)
}

func takeOver(ctx context.Context, locker any, r lockaccess.Request) (*Lease, error) {
	l, ok := locker.(interface {
		takeOver(ctx context.Context, r lockaccess.Request) (*Lease, error)
	})
	if !ok {
		return nil, fmt.Errorf("locking: a %T cannot take a key away from its holder", locker)
	}
	return l.takeOver(ctx, r)
}

// depose ends the lease, and reports whether it could be trusted until then. Its keys stay locked until it is released.
func (l *Lease) depose(by, why string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.check()
	if l.cause != nil {
		return false
	}
	l.end(&LostError{Keys: l.keys, Reason: LossDeposed, Err: &DeposedError{By: by, Why: why}})
	return true
}

// leave ends the lease without a release: the keys stay locked until their TTL ends.
func (l *Lease) leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.end(errLeft)
}

// errLeft is the cause of a lease whose keys stay locked.
var errLeft = errors.New("locking: the lease is over, and its keys stay locked until their TTL ends")

// followDepositions has the leases of the Locker renewed as soon as their owners are deposed, so that they end. The
// notification is a hint: only the renewal proves the loss.
func (s *Single) followDepositions() (stop func(), err error) {
	return s.subscription.Follow(deposedChannel, s.suspension.deposed)
}

func (r *Redlock) followDepositions() (stop func(), err error) {
	var stops []func()
	stop = func() {
		for _, each := range stops {
			each()
		}
	}
	for _, n := range r.nodes {
		each, err := n.subscription.Follow(deposedChannel, r.suspension.deposed)
		if err != nil {
			stop()
			return nil, err
		}
		stops = append(stops, each)
	}
	return stop, nil
}

func (g *Gate) followDepositions() (stop func(), err error) { return followDepositions(g.inner) }

func followDepositions(locker any) (stop func(), err error) {
	if l, ok := locker.(interface{ followDepositions() (func(), error) }); ok {
		return l.followDepositions()
	}
	return func() {}, nil
}

// deposed renews the leases of an owner. A lease that is handed off meanwhile has the same owner, so deposed looks
// again as long as it finds one that it has not seen.
func (d *suspensionDetector) deposed(name string) {
	seen := map[timed]bool{}
	for found := true; found; {
		found = false
		d.mu.Lock()
		for l := range d.leases {
			if !seen[l] && l.ownedBy(name) {
				seen[l], found = true, true
				go l.verify()
			}
		}
		d.mu.Unlock()
	}
}

// ownedBy reports whether the owner of the lease's locks has this name.
func (l *Lease) ownedBy(name string) bool {
	g, ok := l.grant.(interface{ ownedBy(name string) bool })
	return ok && g.ownedBy(name)
}

// verify renews a lease to learn whether it is lost.
func (l *Lease) verify() {
	l.mu.Lock()
	limit := l.term.TTL / leasing.RenewFraction
	l.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	_ = l.renewNow(ctx, true)
}
