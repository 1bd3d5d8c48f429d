package intake

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/asynqwire"
)

// turning is the turns of the places of a server. It is safe for concurrent use.
type turning struct {
	places []*place

	mu    sync.Mutex
	turns *turns
	last  []*place // those that the last Fetch has asked
}

func newTurning(places []*place, slots int, strict bool) *turning {
	t := &turning{places: places, turns: newTurns(len(places), slots, strict)}
	for i, p := range places {
		p.number = i
		t.turns.all[i].has = 0
		for _, position := range p.positions {
			t.turns.all[i].has |= setOf(position)
		}
	}
	return t
}

// query is what a Fetch asks a place for: at most so many tasks, or if negative for as many as there are slots.
type query struct {
	*place
	asks asked
	most int
}

// pick returns what the next Fetch asks at the same time, with so many free slots: places for whose calls tasks wait come first. It is
// empty if no place may have tasks.
func (t *turning) pick(awaited []*place, free int) (all []query) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	for _, p := range awaited {
		if place := &t.turns.all[p.number]; place.answers(now) {
			a, most := t.turns.join(p.number, now, 0)
			a.fetch, a.probe = true, place.outage != nil
			t.turns.ask(p.number)
			all = append(all, query{p, a, most})
		}
	}
	if len(all) == 0 {
		for _, p := range t.turns.picks(now, free) {
			all = append(all, query{t.places[p.place], p.asked, p.most})
		}
	}
	t.last = t.last[:0]
	for _, q := range all {
		t.last = append(t.last, q.place)
	}
	return all
}

// any reports whether a Fetch may ask any place.
func (t *turning) any() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.turns.any(time.Now())
}

// join returns what so many acknowledgements of a place ask for in their call, and how many tasks at most.
func (t *turning) join(p *place, acks int) (a asked, most int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.turns.join(p.number, time.Now(), acks)
}

// answered notes the answer of a place.
func (t *turning) answered(p *place, a asked, full, more bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.turns.answered(p.number, a, full, more)
}

// failed notes that a place could not be asked. If it has not answered, neither do the others on its master.
func (t *turning) failed(p *place, a asked, err error) {
	away := unanswered(err)
	t.mu.Lock()
	told := t.turns.all[p.number].outage != nil && !a.probe
	t.mu.Unlock()
	var all []int
	if away && !told {
		all = t.beside(p)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if away {
		t.turns.unanswered(p.number, a, all, time.Now())
	} else {
		t.turns.failed(p.number, time.Now())
	}
}

// beside returns the numbers of the places on the master of one, as far as that is known.
func (t *turning) beside(p *place) (all []int) {
	cluster, ok := p.in.client.(*redis.ClusterClient)
	if !ok {
		return []int{p.number}
	}
	masterOf := func(p *place) *redis.Client {
		master, err := cluster.MasterForKey(context.Background(), asynqwire.Pending(p.queues[0]))
		if err != nil {
			return nil
		}
		return master
	}
	master := masterOf(p)
	for _, other := range t.places {
		if other == p || master != nil && masterOf(other) == master {
			all = append(all, other.number)
		}
	}
	return all
}

// late notes that the last Fetch has no answer of some places yet: their masters may be away.
func (t *turning) late() {
	t.mu.Lock()
	last := slices.Clone(t.last)
	t.mu.Unlock()
	noted := map[int]bool{}
	for _, p := range last {
		if noted[p.number] || !t.isBusy(p) {
			continue
		}
		all := t.beside(p)
		t.mu.Lock()
		if t.turns.all[p.number].busy {
			t.turns.away(all, time.Now())
			t.turns.ask(p.number)
		}
		t.mu.Unlock()
		for _, i := range all {
			noted[i] = true
		}
	}
}

func (t *turning) isBusy(p *place) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.turns.all[p.number].busy
}

// leave notes that no Fetch of a place is under way.
func (t *turning) leave(p *place) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.turns.leave(p.number)
}

// TakesTurns reports whether the places of the server take turns.
func (in *Intake) TakesTurns() bool { return in.turning != nil }

// Late notes that the last Fetch has had no answer for a while, so that the next one asks another master. It requires that the
// places take turns.
func (in *Intake) Late() { in.turning.late() }

// Hear notes that a queue may have tasks, if the places of the server take turns.
func (in *Intake) Hear(queue string) {
	if p := in.places[queue]; p != nil && in.turning != nil {
		p.hear(setOf(p.positions[slices.Index(p.queues, queue)]))
	}
}

// hear notes that queues of the place may have tasks, which ends a pause of asynq.
func (p *place) hear(queues queueSet) {
	t := p.in.turning
	if t == nil || p.number < 0 {
		return
	}
	t.mu.Lock()
	fresh := t.turns.hear(p.number, queues)
	t.mu.Unlock()
	if fresh {
		p.in.slots.arrive()
	}
}
