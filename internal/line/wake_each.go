package line

import (
	"context"
	"sync"
	"time"

	"github.com/railtoken/railtoken/internal/pipeline"
)

func (e *Engine) call(target wakeTarget, opts WakeOptions, late []Task) call {
	c := call{
		target: target, waiters: e.names.Waiters(target.key), late: late, most: min(max(opts.Most, 1), wakeLooks),
	}
	if opts.Leaver != (Task{}) {
		c.leaver = opts.Leaver.Entry()
	}
	if target.task != (Task{}) {
		c.only = target.task.Entry()
		return c
	}
	for _, t := range late {
		c.held = append(c.held, t.Queue)
	}
	unserved, starved := e.knownUnserved()
	c.held, c.starved, c.hope = append(c.held, unserved...), starved, starved == 0 && len(late) == 0
	return c
}

// wakeEach makes several wakes at once.
func (e *Engine) wakeEach(ctx context.Context, calls []call) []KeyWoken {
	all := make([]KeyWoken, len(calls))
	inSteps := make([]int, len(calls))
	for i := range calls {
		inSteps[i] = i
	}
	if !e.spread || e.names.Count() > 0 {
		if e.spread {
			e.leaveApart(ctx, calls)
		}
		inSteps = e.wakeAtOnce(ctx, calls, all)
	}
	var wakes sync.WaitGroup
	for _, i := range inSteps {
		wakes.Go(func() { all[i].Woken, all[i].Err = e.wakeInSteps(ctx, calls[i]) })
	}
	wakes.Wait()
	return all
}

// leaveApart takes the leavers out that the script does not reach, because they are in another lane than the key. If that fails, the
// wake is made in steps, which try it again.
func (e *Engine) leaveApart(ctx context.Context, calls []call) {
	var leaves sync.WaitGroup
	for i := range calls {
		c := &calls[i]
		if t := taskOf(c.leaver); c.leaver != "" && !e.Together(t.Queue, c.target.key) {
			leaves.Go(func() {
				if e.Leave(ctx, c.target.key, t) == nil {
					c.leaver = ""
				}
			})
		}
	}
	leaves.Wait()
}

// wakeAtOnce runs wake.lua for each call, and again for those that have no answer yet. It checks each waiter once. It returns
// the calls that it leaves to steps: one of their waiters is in another lane than the key, or a slot moves.
func (e *Engine) wakeAtOnce(ctx context.Context, calls []call, all []KeyWoken) (inSteps []int) {
	now, offsets := time.Now().UnixNano(), make([]int, len(calls))
	open := make([]int, len(calls))
	for i := range open {
		open[i] = i
	}
	for len(open) > 0 {
		scripts := make([]pipeline.ScriptCall, len(open))
		for n, i := range open {
			c := calls[i]
			args := []any{c.leaver, c.only, now, offsets[i], wakeLooks, c.most, number(c.hope), owedAfter.Milliseconds()}
			scripts[n] = pipeline.ScriptCall{Script: wakeScript, Keys: e.wakeKeys(c), Args: append(args, anys(c.held)...)}
		}
		replies, again := e.pipeline(ctx, scripts), open[:0]
		for n, i := range open {
			r := replyOf(replies[n])
			outcome, left := r.text(), r.number()
			if r.err == nil && outcome == "more" {
				offsets[i] = left
				again = append(again, i)
				continue
			}
			if e.spread && (outcome == "apart" || moving(r.err)) {
				inSteps = append(inSteps, i)
				continue
			}
			all[i] = KeyWoken{Woken{Tasks: tasksOf(r.texts(len(r.rest))), Left: left, gone: outcome == "gone"}, r.err}
		}
		open = again
	}
	return inSteps
}

// wakeKeys returns the keys of wake.lua. On a Cluster one of them never exists: then Redis refuses the script before it begins
// while the slot moves, although the script names only there the hashes of the tasks that it wakes.
func (e *Engine) wakeKeys(c call) []string {
	index := e.names.indexOf(c.target.key)
	keys := []string{c.waiters, index, OwedIn(index)}
	if e.spread {
		keys = append(keys, index+":never")
	}
	return keys
}
