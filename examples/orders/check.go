package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// check compares the tasks of a run with the database and asynq's queues. ended is nil when every task has ended. produced
// says that all tasks have been enqueued.
func (r *run) check(ctx context.Context, s *store, a *archives, ended error, produced bool) (*report, error) {
	rep := &report{Stopped: ended}
	// Read before the ledger, so that a task that another process finishes meanwhile is in one of the two.
	alive, err := a.alive()
	if err != nil {
		return nil, err
	}
	entries, err := s.ledger(ctx)
	if err != nil {
		return nil, err
	}
	counters, err := s.counters(ctx, r.ID)
	if err != nil {
		return nil, err
	}
	found, err := a.read()
	if err != nil {
		return nil, err
	}
	rep.Balance = balanceOf(entries, counters)

	done := make(map[string]bool, len(entries))
	for _, e := range entries {
		done[e.TaskID] = true
	}
	for i, o := range r.Orders {
		ids := []string{auditID(o.ID), allocateID(o.ID)}
		if isCancelled(i, r.Cancel) {
			ids = append(ids, cancelID(o.ID))
		}
		for _, id := range ids {
			stopped := fmt.Sprintf("railtoken: cancelled by task %s/", r.ID.cancelQueue())
			conflict, refused := found.Refused[id]
			lastErr, failed := found.Failed[id]
			state, waits := alive[id]
			switch {
			case done[id]:
				rep.Done++
			case refused:
				rep.Refused++
				if rep.Example == "" {
					rep.Example = fmt.Sprintf("%s: key %q was held by %s, taken at %s, fencing token %d; try again in %v",
						id, r.ID.business(conflict.Key), conflict.Holder.Label, conflict.Holder.Since.Format("15:04:05.000"),
						conflict.Holder.Fence, conflict.RetryAfter.Round(time.Millisecond))
				}
			case failed && strings.HasPrefix(lastErr, stopped+cancelID(o.ID)+": "):
				rep.Superseded++
			case failed:
				rep.Lost++
				rep.note("lost", id, "archived, but not for a conflict: "+lastErr)
			case waits:
				rep.Unfinished++
				if !errors.Is(ended, context.Canceled) { // after Ctrl-C, unfinished tasks are expected
					rep.note("not reached", id, state)
				}
			case ended != nil && !produced:
				rep.Unfinished++ // not enqueued, as far as we know
			default:
				rep.Lost++
				rep.note("lost", id, "neither in the ledger nor in any queue")
			}
		}
	}
	return rep, nil
}
