package delayqueue

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// mostPassed is how many waiters that cannot run one wake passes over, about: see wake.lua.
const mostPassed = 10_000

// promoteTimeout is how long a waiter that was taken out of its line may take to be promoted, even when the caller has given up.
const promoteTimeout = 2 * time.Second

// wakesAtOnce is how many keys are woken at a time on a Cluster.
const wakesAtOnce = 16

// wakeSideBySide wakes for several keys: those that nobody waits for take one call for all of them.
func (q *Queue) wakeSideBySide(ctx context.Context, calls []call) []woken {
	all := make([]woken, len(calls))
	waiting, err := q.waitingFor(ctx, calls)
	if err != nil {
		for i := range all {
			all[i].err = err
		}
		return all
	}
	var wakes sync.WaitGroup
	room := make(chan struct{}, wakesAtOnce)
	for i, c := range calls {
		if i > 0 && !waiting[i] { // the first one clears the record of the leaver, which all of them have in common
			all[i].outcome = "none"
			continue
		}
		room <- struct{}{}
		wakes.Go(func() {
			defer func() { <-room }()
			all[i].outcome, all[i].woken, all[i].err = q.wakeInSteps(ctx, c)
		})
	}
	wakes.Wait()
	return all
}

// waitingFor reports for which of several keys somebody waits. One alone is not asked about.
func (q *Queue) waitingFor(ctx context.Context, calls []call) ([]bool, error) {
	waiting, counts := make([]bool, len(calls)), make([]*redis.IntCmd, len(calls))
	if len(calls) == 1 {
		return waiting, nil
	}
	_, err := q.client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for i, c := range calls {
			counts[i] = pipe.ZCard(ctx, c.registry)
		}
		return nil
	})
	for i := range counts {
		waiting[i] = counts[i].Val() > 0
	}
	return waiting, err
}

// wakeInSteps does on a Cluster what wake.lua does at once. The order makes every point at which it may end harmless:
//
//  1. The leaver's record is cleared, and its entry taken out of the index and the line. After part of that alone: an entry is left over,
//     which a wake, or a look at a full index, finds to be gone.
//  2. A look at the line, and at the state of those in it. This changes nothing.
//  3. Those that are to be woken are taken out of the line. Of two wakes one alone has each: nobody is counted by both.
//  4. They are promoted, and struck off the index. A wake that ends before this leaves tasks that are in no line: their timers bring them back.
//     Those whose promotion fails are put back in line. The next in line has its timer shortened in the background; without that it is long.
//
// A waiter whose queue's slot moves from one node to another is passed over in step 2, and stays in line: the wake goes to one behind it, or when there
// is none, is tried again until the slot has arrived. One whose slot begins to move after that is put back by step 4.
//
// A task that step 4 finds to run, to be gone or to wait in another line by now passes the wake on to the next.
func (q *Queue) wakeInSteps(ctx context.Context, c call) (outcome string, w Woken, err error) {
	if c.leaver != "" {
		if c.leaver, err = q.leave(ctx, c.leaver); err != nil {
			return "", w, err
		}
	}
	size, passed, done, blocked, held := c.most, 0, 0, false, false
	for {
		left, entries, err := numbered(q.step(ctx, lookStep, c.registry, c.leaver, c.only, passed, size))
		if err != nil {
			return "", w, err
		}
		w.Left, c.leaver = left, ""
		choice, err := q.choose(ctx, c, entries, c.most-done)
		if err != nil {
			return "", w, err
		}
		passed += choice.passed
		blocked, held = blocked || choice.moving, held || choice.held
		if len(choice.out) > 0 {
			n, err := q.takeAndPromote(ctx, c, choice, &w)
			done += n
			switch {
			case moving(err):
				return "moving", w, nil
			case err != nil:
				return "", w, err
			}
		}
		switch {
		case done >= c.most, done > 0 && choice.end(entries, size):
			return "woken", w, nil
		case choice.end(entries, size) || passed >= mostPassed:
			switch {
			case blocked:
				return "moving", w, nil
			case held && c.hope:
				err = q.hope(ctx, c)
			}
			return "none", w, err
		}
		size = wakeLooks
	}
}

// leave clears the record of the task that gives the key back. It returns its entry when that must be taken out of the line.
func (q *Queue) leave(ctx context.Context, entry string) (string, error) {
	t, err := parseMember(entry)
	if err != nil {
		return "", err
	}
	reply, err := q.step(ctx, leaveStep, t.hash()).Int64Slice()
	switch {
	case err != nil:
		return "", err
	case len(reply) != 2:
		return "", unexpected(reply)
	case reply[0] == 0:
		return "", nil
	case reply[1] > 0: // it was parked
		err = q.client.ZRem(ctx, q.index, entry).Err()
	}
	return entry, err
}

// choice is what a wake will do with the waiters that it has looked at.
type choice struct {
	out    []string          // to be taken out of the line, and woken if they can be
	parked map[string]string // when each of them was last parked
	place  map[string]string // where each of them stands
	passed int               // waiters that it passes over
	moving bool              // one of these was, because its slot moves
	held   bool              // one of these was, because its queue is paused or no server works on it
	looked int               // how many it has decided upon
}

// end reports whether nobody is in line behind those that it has decided upon.
func (c choice) end(entries []string, size int) bool {
	return c.looked == len(entries) && len(entries) < size
}

// choose looks at the state of waiters, and decides upon them in the order of the line until it has wanted ones.
func (q *Queue) choose(ctx context.Context, c call, entries []string, wanted int) (choice, error) {
	if len(entries) == 0 {
		return choice{}, nil
	}
	looks, stuck, scores, err := q.lookAt(ctx, c, entries)
	if err != nil {
		return choice{}, err
	}
	found := choice{parked: map[string]string{}, place: map[string]string{}}
	for i, entry := range entries {
		at := looks[i]
		if stuck[taskOf(entry).Queue] || at.moving {
			found.moving = found.moving || at.moving
			found.held = found.held || !at.moving
			found.passed++
			found.looked++
			continue
		}
		found.looked++
		found.out = append(found.out, entry)
		found.place[entry] = at.place
		if scores[i] != "" && at.verdict != "elsewhere" {
			found.parked[entry] = scores[i]
		}
		if at.verdict == "here" {
			wanted--
		}
		if wanted == 0 {
			break
		}
	}
	return found, nil
}

// look is what the check step has found.
type look struct {
	verdict, state, place string
	moving                bool // it has found nothing, as the slot moves
}

// lookAt looks at waiters, at whether their queues can be worked on, and when they were last parked. Those of queues that are held are not looked at.
func (q *Queue) lookAt(ctx context.Context, c call, entries []string) (looks []look, stuck map[string]bool, scores []string, err error) {
	looks, stuck = make([]look, len(entries)), map[string]bool{}
	for _, queue := range c.held {
		stuck[queue] = true
	}
	var calls []scriptCall
	var checked []int
	queues := map[string]int{} // those that may be paused, and the calls that tell
	for i, entry := range entries {
		t := taskOf(entry)
		if stuck[t.Queue] {
			continue
		}
		if _, asked := queues[t.Queue]; !asked && c.only == "" {
			queues[t.Queue] = len(calls)
			calls = append(calls, scriptCall{pausedStep, []string{t.prefix() + "paused"}, nil})
		}
		checked = append(checked, i, len(calls))
		calls = append(calls, scriptCall{checkStep, t.listed(), []any{c.registry, time.Now().UnixNano()}})
	}
	replies := q.pipeline(ctx, append(calls, scriptCall{scoresStep, []string{q.index}, anys(entries)}))
	scores, err = replies[len(calls)].StringSlice()
	if err == nil && len(scores) != len(entries) {
		err = unexpected(scores)
	}
	for queue, i := range queues {
		paused, failed := replies[i].Int()
		stuck[queue] = paused == 1
		err = errors.Join(err, failed)
	}
	for ; len(checked) > 0; checked = checked[2:] {
		reply, failed := replies[checked[1]].StringSlice()
		switch {
		case moving(failed):
			looks[checked[0]] = look{moving: true}
		case failed != nil:
			err = errors.Join(err, failed)
		case len(reply) != 3:
			err = errors.Join(err, unexpected(reply))
		default:
			looks[checked[0]] = look{verdict: reply[0], state: reply[1], place: reply[2]}
		}
	}
	return looks, stuck, scores, err
}

// hope puts the first in line that could run if its queue were worked on at the head of that queue, and leaves it in line. One that is pending is
// there already.
func (q *Queue) hope(ctx context.Context, c call) error {
	_, entries, err := numbered(q.step(ctx, lookStep, c.registry, "", "", 0, wakeLooks))
	if err != nil || len(entries) == 0 {
		return err
	}
	c.held, c.only = nil, "" // whether the queues are worked on does not matter
	looks, _, _, err := q.lookAt(ctx, c, entries)
	if err != nil {
		return err
	}
	for i, at := range looks {
		if at.verdict != "here" {
			continue
		}
		if at.state != "pending" {
			err = q.pipeline(ctx, []scriptCall{{
				promoteStep, taskOf(entries[i]).listed(), []any{c.registry, entries[i], time.Now().UnixNano()},
			}})[0].Err()
		}
		return err
	}
	return nil
}

// takeAndPromote takes waiters out of the line, and moves those of them that this call has got to the heads of their queues. It adds them
// to w, and returns how many try the key now.
func (q *Queue) takeAndPromote(ctx context.Context, c call, found choice, w *Woken) (done int, err error) {
	left, mine, err := numbered(q.step(ctx, discardStep, c.registry, anys(found.out)...))
	if err != nil {
		return 0, err
	}
	w.Left = left
	if len(mine) == 0 {
		return 0, nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), promoteTimeout)
	defer cancel()
	calls := make([]scriptCall, 0, len(mine)+2)
	now := time.Now().UnixNano()
	for _, entry := range slices.Backward(mine) { // the first of them comes last, to the very head
		calls = append(calls, scriptCall{promoteStep, taskOf(entry).listed(), []any{c.registry, entry, now}})
	}
	replies := q.pipeline(ctx, append(calls, scriptCall{strikeStep, []string{q.index}, pairs(mine, found.parked)},
		scriptCall{lookStep, []string{c.registry}, []any{"", "", 0, 1}}))
	err = replies[len(mine)].Err()
	for i, entry := range mine {
		verdict, failed := replies[len(mine)-1-i].Text()
		switch {
		case failed != nil:
			err = errors.Join(failed, q.putBack(ctx, c.registry, entry, found.place[entry]), q.enterBack(ctx, entry, found.parked[entry]), err)
		case verdict == "woken":
			w.Tasks = append(w.Tasks, taskOf(entry))
			done++
		}
	}
	if _, next, _ := numbered(replies[len(mine)+1]); done > 0 && len(next) > 0 {
		q.background(followLimit, func(ctx context.Context) { q.hasten(ctx, next[0]) })
	}
	return done, err
}

// hasten has the next in line look for itself soon: if those who were woken die, it must not wait as long as it thought when others stood before it.
func (q *Queue) hasten(ctx context.Context, entry string) {
	err := q.pipeline(ctx, []scriptCall{{hastenStep, taskOf(entry).listed(), []any{entry, time.Now().UnixNano()}}})[0].Err()
	if err != nil && !errors.Is(err, redis.Nil) {
		q.log.WarnContext(ctx, "the next in line keeps its long timer", "error", err)
	}
}

// putBack puts an entry back in line, unless its task has done so.
func (q *Queue) putBack(ctx context.Context, registry, entry, place string) error {
	score, err := strconv.ParseFloat(place, 64)
	if err != nil {
		return unexpected(place)
	}
	return q.client.ZAddNX(ctx, registry, redis.Z{Score: score, Member: entry}).Err()
}

// enterBack puts an entry back in the index, as of the time when it was parked; one that was not in it stays out.
func (q *Queue) enterBack(ctx context.Context, entry, parked string) error {
	if parked == "" {
		return nil
	}
	return q.putBack(ctx, q.index, entry, parked)
}
