package lanemove

import (
	"context"
	"slices"

	"github.com/railtoken/railtoken/internal/asynqwire"
)

// Plan returns what [Run] would move. It changes nothing.
func Plan(ctx context.Context, o Options) (*Report, error) {
	m := newMover(o)
	if m.names.Count() == 0 {
		return m.report, errNoLanes
	}
	if err := m.names.Check(o.Queue); err != nil {
		return m.report, err
	}
	for _, state := range states {
		ids, err := m.all(ctx, state)
		if err != nil {
			return m.report, err
		}
		for some := range slices.Chunk(ids, batchSize) {
			all, err := m.read(ctx, some)
			if err != nil {
				return m.report, err
			}
			for i, f := range all {
				m.count(state, some[i], f)
			}
		}
	}
	m.countStays()
	return m.report, m.countOthers(ctx)
}

// count adds a task to the report.
func (m *mover) count(state, id string, f fields) {
	if len(f) == 0 {
		return
	}
	lane, why := laneOf(m.names, f)
	if why != "" {
		m.stays[id] = why
		return
	}
	m.report.Moved[state]++
	m.report.Lanes[lane]++
}

// countOthers adds the tasks that no move touches, and those that an earlier one has begun with.
func (m *mover) countOthers(ctx context.Context) error {
	running, err := m.client.LLen(ctx, asynqwire.Active(m.Queue)).Result()
	if err != nil {
		return err
	}
	done, err := m.client.ZCard(ctx, asynqwire.Completed(m.Queue)).Result()
	if err != nil {
		return err
	}
	for why, n := range map[Reason]int64{Runs: running, IsDone: done} {
		if n > 0 {
			m.report.Stays[why] = int(n)
		}
	}
	m.report.Resumed, err = Unfinished(ctx, m.client, m.Queue)
	return err
}
