package inspect

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/railtoken/railtoken/internal/holdings"
	"github.com/railtoken/railtoken/internal/lockwire"
)

// heldStep is how many locks one call reads: Redis does nothing else meanwhile.
const heldStep = 500

// Held returns the n keys that tasks have held longest, the longest first. Workers report every 5 s what their tasks hold,
// so a key that has been held for less is seldom among them; one that is no longer held, because the task has ended or was
// deposed, is not: the lock servers are asked. Locks in stores that the Inspector does not see are as reported.
//
// It costs as much as [Inspector.Workers], and one call to each lock server for 500 keys. Locks of other programs, and those
// taken outside of tasks, are missing: see [Inspector.Scan].
func (i *Inspector) Held(ctx context.Context, n int) ([]Holding, error) {
	workers, err := i.Workers(ctx)
	if err != nil {
		return nil, err
	}
	var held []Holding
	unseen := map[string]bool{} // workers
	for _, w := range workers {
		held = append(held, w.Held...)
		unseen[w.ID] = !holdings.OnRedis(w.Backend)
	}
	slices.SortStableFunc(held, func(a, b Holding) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Key, b.Key))
	})
	n = max(n, 0)
	var still []Holding
	for part := range slices.Chunk(held, heldStep) {
		if len(still) >= n {
			break
		}
		keys := make([]string, len(part))
		for at, h := range part {
			keys[at] = h.Key
		}
		found, err := i.holders(ctx, keys)
		if err != nil {
			return nil, err
		}
		for at, h := range part {
			if unseen[h.Worker] || found[at].has(h) {
				still = append(still, h)
			}
		}
	}
	return still[:min(n, len(still))], nil
}

// Holders asks the lock servers alone who holds keys, and returns a holder for each key: nil for one that is free there. Of a
// holder only Owner, Label, Since and Votes are known. Owner is empty if too few lock servers have answered to tell.
//
// It makes one call to each lock server for 500 keys.
func (i *Inspector) Holders(ctx context.Context, keys []string) ([]*Holder, error) {
	holders := make([]*Holder, 0, len(keys))
	for part := range slices.Chunk(keys, heldStep) {
		found, err := i.holders(ctx, part)
		if err != nil {
			return nil, err
		}
		for _, l := range found {
			if l.Holder == nil && l.unknown {
				l.Holder = &Holder{}
			}
			holders = append(holders, l.Holder)
		}
	}
	return holders, nil
}

// lockHolder is what the lock servers say of a key: unknown if too few have answered.
type lockHolder struct {
	*Holder
	unknown bool
}

// has reports whether a task can hold the key, as far as is known. A report from before the lock was taken is about an
// earlier holder.
func (l lockHolder) has(h Holding) bool {
	if l.Holder == nil {
		return l.unknown
	}
	return strings.HasPrefix(l.Label, h.Host+"/"+strconv.Itoa(h.PID)+"/") && !h.Seen.Before(l.Since)
}

// holders asks all lock servers who holds some keys.
func (i *Inspector) holders(ctx context.Context, keys []string) ([]lockHolder, error) {
	names := make([]string, len(keys))
	for n, key := range keys {
		of, err := lockwire.KeysOf(key, i.opts.RedisKey)
		if err != nil {
			return nil, err
		}
		names[n] = of.Lock
	}
	found := make([][]ServerLock, len(i.servers))
	var all sync.WaitGroup
	for n, s := range i.servers {
		all.Go(func() { found[n] = s.locksOf(ctx, names) })
	}
	all.Wait()
	holders := make([]lockHolder, len(keys))
	for n := range keys {
		locks := make([]ServerLock, len(found))
		for s := range found {
			locks[s] = found[s][n]
			holders[n].unknown = holders[n].unknown || locks[s].Err != nil
		}
		holders[n].Holder = holderOf(locks, i.quorum())
	}
	return holders, nil
}

// errSilent says that a lock server has not answered.
var errSilent = errors.New("inspect: no answer")

// locksOf returns the locks on one lock server.
func (s *server) locksOf(ctx context.Context, names []string) []ServerLock {
	locks := make([]ServerLock, len(names))
	for n, value := range s.owners(ctx, names) {
		locks[n].Addr = s.addr
		switch value {
		case "":
		case "?":
			locks[n].Err = errSilent
		default:
			o := lockwire.ParseOwner(value)
			locks[n].Owner, locks[n].Label, locks[n].Since = lockwire.Name(value), o.Label, o.Since
		}
	}
	return locks
}
