package intake

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/asynqwire"
	"github.com/railtoken/railtoken/internal/lockwire"
)

// fetch takes tasks, on its own or with acknowledgements. A fetch whose reply is lost is recalled by its name.
type fetch struct {
	*place

	most  int       // tasks
	asks  asked     // of a place that takes turns
	tells int       // how many tasks come if there are more; 0 if nothing tells that
	found []arrival // tasks of earlier fetches, whose locks it takes
	sent  time.Time // when the leases of its tasks begin
	keys  []string  // those of the queues, and the mark of its recall
	args  []any     // see grant.lua
	reader
}

// name returns the name of a fetch. It tells the worker, if others may take back the runs once it is silent.
func (in *Intake) name() string {
	if in.worker != nil {
		if name := in.worker(); name != "" {
			return lockwire.NewRun(name)
		}
	}
	return rand.Text()
}

// HoldMost is how long a fetch that is not answered keeps its slots from other places, and holds up the next one, if places take turns.
const HoldMost = 100 * time.Millisecond

// Positions in the arguments of a fetch.
const (
	mostArg  = 1
	leaseArg = 2
)

// fetch returns a fetch of at most most tasks, beside which it may take followers. If it takes nothing at all, it has no name.
func (p *place) fetch(most int, found []arrival, takes bool, a asked) fetch {
	f := fetch{place: p, most: most, asks: a, tells: most, found: found, reader: reader{names: p.queues}}
	if takes {
		f.call = p.in.name()
		f.asking = p.ask()
	}
	f.keys = append(append(make([]string, 0, 1+len(p.keys)), p.keys...), recalledKey(p.queues[0], f.call))
	orders := []any{"\x01"}
	if len(p.queues) > 1 {
		orders = p.in.order.orders(max(most, 1), a.queues)
	}
	f.sent = time.Now()
	if a.woken {
		most, f.tells = -most, 0
	}
	f.args = append(make([]any, 0, 13+len(orders)+5*len(found)), f.call, most, leaseEnd(f.sent))
	f.args = append(f.args, f.values()...)
	f.args = append(append(f.args, f.sent.UnixNano(), p.in.parking.unserved(), len(orders)), orders...)
	f.args = append(f.args, len(found))
	for _, t := range found {
		f.args = append(f.args, slices.Index(p.queues, t.Queue)+1, t.ID, t.Run, t.Recorded, t.Message[:2+len(typeOf(t.Message))])
	}
	return f
}

// answered notes the tasks that a reply has. It reports whether there may be others behind them: the call has stopped before,
// or some were parked or are being parked.
func (f *fetch) answered(reply any, err error) (more bool, _ error) {
	var g got
	rest, answers := f.divided(reply)
	if err == nil {
		g, err = f.read(rest)
	}
	came := len(g.tasks)
	g.tasks = f.in.yield(g.tasks)
	g.more = g.more || len(g.tasks) < came
	if len(g.parked) > 0 && f.in.parking != nil {
		f.in.parking.Parked(g.parked)
	}
	f.turned(came >= f.tells, g.more || len(g.parked) > 0, err)
	if g.more {
		f.in.slots.arrive()
	}
	found, others := f.in.find(f, g.tasks)
	if len(found) > 0 {
		f.in.slots.wait(f.place, found, f.sent)
		f.in.watch()
	}
	others, n := f.in.lock(others, f.sent)
	more = f.in.came(f.most-n, others, f.sent) // with the tasks that were woken
	return f.admitted(answers) || more || g.more || len(found)+n > 0, err
}

// turned notes what an answer says of a place that takes turns: as many tasks as it was asked for, or more behind others.
func (f *fetch) turned(full, more bool, err error) {
	switch t := f.in.turning; {
	case t == nil || f.number < 0:
	case err != nil:
		t.failed(f.place, f.asks, err)
	case f.tells > 0:
		t.answered(f.place, f.asks, full, full || more)
	}
}

// free frees the slots of an unanswered fetch for tasks from other nodes. The tasks that it may have taken go back, if there is no slot
// for them when they come.
func (f *fetch) free() {
	if f.in.oneNode {
		return
	}
	f.in.slots.answered(f.most, nil, time.Time{})
	f.most = 0
}

// recall asks for the tasks that an unanswered fetch has taken. It returns an error if it is to be called again.
func (f *fetch) recall(ctx context.Context) (more bool, err error) {
	args := slices.Clone(f.args)
	f.tells, f.sent = 0, time.Now()
	args[mostArg], args[leaseArg] = int(lateCall.Seconds()), leaseEnd(f.sent)
	reply, err := f.run(ctx, f.in.recallScript, f.keys, args...)
	if passes(err) {
		return false, err
	}
	more, _ = f.answered(reply, err)
	return more, nil
}

// recalledKey returns the mark of a fetch that was recalled. Its name begins as asynq's own do, because a Redis user of
// asynq's may have no rights to others.
func recalledKey(queue, call string) string { return asynqwire.Prefix(queue) + "recalled:" + call }

// Fetch takes tasks from the queues of the server; on a Redis Cluster, from the one that asynq has asked for, and with lanes from
// the places whose turn it is. more reports that others may come at once: some of them were parked, or are about to be, so that
// others may be behind them, or another place may have some.
func (in *Intake) Fetch(ctx context.Context, queue string) (more bool, err error) {
	if !in.begin(false) {
		return false, redis.Nil
	}
	defer in.end()
	in.quiet.Store(false)
	if in.turning == nil {
		return in.place(queue).take(ctx, asked{}, -1, 1)
	}
	free := in.slots.free()
	if in.isStopping() {
		free = 1
	}
	queries := in.turning.pick(in.slots.awaited(), free)
	more, err = takeAll(ctx, queries)
	switch {
	case errors.Is(err, redis.Nil): // another call is about to fill the slot
		return false, err
	case in.turning.any(): // one place that cannot be asked holds up no other
		return true, nil
	default:
		return more, err
	}
}

// takeAll takes tasks from several places at the same time. It returns an error if each of them does.
func takeAll(ctx context.Context, queries []query) (more bool, err error) {
	if len(queries) == 0 {
		return false, redis.Nil
	}
	type answer struct {
		more bool
		err  error
	}
	answers := make([]answer, len(queries))
	var asking sync.WaitGroup
	for i, q := range queries[1:] {
		asking.Go(func() { answers[1+i].more, answers[1+i].err = q.take(ctx, q.asks, q.most, 0) })
	}
	answers[0].more, answers[0].err = queries[0].take(ctx, queries[0].asks, queries[0].most, 1)
	asking.Wait()
	failed := 0
	for _, a := range answers {
		more = more || a.more
		if a.err != nil {
			failed++
			if err == nil || errors.Is(err, redis.Nil) {
				err = a.err
			}
		}
	}
	if failed < len(answers) {
		err = nil
	}
	return more, err
}

// take takes tasks from a place, for at least so many slots unless tasks wait for one.
func (p *place) take(ctx context.Context, a asked, most, least int) (more bool, err error) {
	in := p.in
	p.recalling <- struct{}{}
	defer func() { <-p.recalling }()
	leave := p.leave
	defer func() { leave() }() //nolint:gocritic // it may be another function by then
	if err := p.recall(ctx); err != nil {
		(&fetch{place: p, asks: a}).turned(false, false, err)
		return false, err
	}
	found, n := in.slots.ask(p, least, 0, most)
	if n == 0 && len(found) == 0 { // another call is about to fill the slot
		return false, redis.Nil
	}
	if in.isStopping() && n > 1 {
		n = in.slots.keep(n, 1)
	}
	if !p.colocated {
		n = in.slots.keep(n, in.order.share(p.queues[0], n))
	}
	f := p.fetch(n, found, true, a)
	reply, err := f.send(ctx)
	if !unanswered(err) {
		return f.answered(reply, err)
	}
	f.turned(false, false, err)
	f.free()
	var others atomic.Bool // a recall in the background may outlast this call
	p.lost = func(ctx context.Context) error {
		more, err := f.recall(ctx)
		if err == nil {
			others.Store(more)
		}
		return err
	}
	if p.recall(ctx) == nil {
		return others.Load(), nil
	}
	leave = func() {}
	in.repeat(func(ctx context.Context) error { // asynq asks for no other task while it has as many as it can run
		p.recalling <- struct{}{}
		defer func() { <-p.recalling }()
		if p.lost != nil && time.Since(p.recalled) < repeatMost { //nolint:forbidigo // a pause: asynq does fetch
			return errRecalled
		}
		return p.recall(ctx)
	}, p.back) // the next fetch recalls it
	return false, err
}

// send makes the call. If other places may be asked meanwhile, and it is not answered in time, it frees its slots for them.
func (f *fetch) send(ctx context.Context) (reply any, err error) {
	if f.in.turning == nil {
		return f.run(ctx, f.in.fetchScript, f.keys, f.args...)
	}
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		reply, err = f.run(ctx, f.in.fetchScript, f.keys, f.args...)
	}()
	select {
	case <-answered:
	case <-time.After(HoldMost):
		f.free()
		<-answered
	}
	return reply, err
}

// leave lets the next Fetch ask the place, if places take turns.
func (p *place) leave() {
	if p.in.turning != nil && p.number >= 0 {
		p.in.turning.leave(p)
	}
}

// back does what leave does for a place that has not answered for a while, and ends a pause of asynq.
func (p *place) back() {
	p.leave()
	if p.in.turning != nil {
		p.in.slots.arrive()
	}
}

// errRecalled has a recall in the background wait, because the last one was a moment ago.
var errRecalled = errors.New("broker: the last fetch was recalled just now")

// recall asks for the tasks of the last Fetch if it was not answered. The caller has put a value into recalling.
func (p *place) recall(ctx context.Context) error {
	if p.lost == nil {
		return nil
	}
	p.recalled = time.Now()
	err := p.lost(ctx)
	if err == nil {
		p.lost = nil
		p.back()
	}
	return err
}
