package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"
)

// entry is one row of the ledger: the effect of a task, with what it added to the counter of each key.
type entry struct {
	TaskID       string
	Began, Ended time.Time
	Changes      map[string]int64
}

// ledger returns every effect.
func (s *store) ledger(ctx context.Context) ([]entry, error) {
	rows, err := s.db.QueryContext(ctx, `SELECT task_id, began_us, ended_us, changes FROM ledger`)
	if err != nil {
		return nil, fmt.Errorf("orders: read the ledger: %w", err)
	}
	defer rows.Close()
	var entries []entry
	for rows.Next() {
		var e entry
		var began, ended int64
		var changes string
		if err := rows.Scan(&e.TaskID, &began, &ended, &changes); err != nil {
			return nil, fmt.Errorf("orders: read the ledger: %w", err)
		}
		if err := json.Unmarshal([]byte(changes), &e.Changes); err != nil {
			return nil, fmt.Errorf("orders: the ledger's row of %s: %w", e.TaskID, err)
		}
		e.Began, e.Ended = time.UnixMicro(began), time.UnixMicro(ended)
		entries = append(entries, e)
	}
	return entries, rows.Err()
}

// counters returns the value of every counter, by key.
func (s *store) counters(ctx context.Context, run runID) (map[string]int64, error) {
	counters := map[string]int64{}
	for _, t := range []struct {
		query string
		key   func(string) string
	}{
		{`SELECT id, revision FROM orders`, run.orderKey},
		{`SELECT id, reserved FROM sellers`, run.sellerKey},
	} {
		err := func() error {
			rows, err := s.db.QueryContext(ctx, t.query)
			if err != nil {
				return err
			}
			defer rows.Close()
			for rows.Next() {
				var id string
				var n int64
				if err := rows.Scan(&id, &n); err != nil {
					return err
				}
				counters[t.key(id)] = n
			}
			return rows.Err()
		}()
		if err != nil {
			return nil, fmt.Errorf("orders: read the counters: %w", err)
		}
	}
	return counters, nil
}

// balance is the result of comparing the ledger with the counters.
type balance struct {
	Lost     int64 // what the counters lack
	Doubled  int64 // what they have too much
	Overlaps int   // pairs of tasks that worked on a key at the same time, by the times in the ledger
}

// balanceOf compares the counters with the ledger, key by key, so that a surplus of one key cannot hide a deficit of another.
func balanceOf(entries []entry, counters map[string]int64) balance {
	expected := map[string]int64{}
	holds := map[string][]entry{}
	for _, e := range entries {
		for key, amount := range e.Changes {
			expected[key] += amount
			holds[key] = append(holds[key], e)
		}
	}
	for key := range counters {
		expected[key] += 0 // a counter that no task has changed must be zero
	}
	var b balance
	for key, want := range expected {
		if got := counters[key]; got < want {
			b.Lost += want - got
		} else {
			b.Doubled += got - want
		}
	}
	for _, list := range holds {
		b.Overlaps += overlapping(list)
	}
	return b
}

// overlapping counts the entries that began before an earlier one had ended.
func overlapping(entries []entry) int {
	slices.SortFunc(entries, func(a, b entry) int { return cmp.Or(a.Began.Compare(b.Began), a.Ended.Compare(b.Ended)) })
	count := 0
	var end time.Time
	for _, e := range entries {
		if e.Began.Before(end) {
			count++
		}
		if e.Ended.After(end) {
			end = e.Ended
		}
	}
	return count
}
