package locking

import (
	"slices"
	"sync/atomic"
)

// silence says whether the workers that share a Locker have been silent for so long that another process may have taken their
// keys, although the locks would have lasted longer. The zero value says no. It is safe for concurrent use.
type silence struct {
	by     atomic.Pointer[[]*func() error]
	lapses atomic.Int64          // how often a worker was silent for so long
	last   atomic.Pointer[error] // what it has said then
}

// tells reports whether locks that are taken now may tell this process: a worker has its leases end once it is silent, and it is not.
func (s *silence) tells() bool {
	all := s.by.Load()
	return all != nil && len(*all) > 0 && s.err() == nil
}

// over returns why a lease whose locks tell this process has ended, if it began after so many lapses; nil if it has not.
func (s *silence) over(lapses int64) error {
	if err := s.err(); err != nil {
		return err
	}
	if s.lapses.Load() == lapses {
		return nil
	}
	return *s.last.Load()
}

// lapse ends all leases whose locks tell this process and that began before, also those of calls that have not been answered yet.
func (s *silence) lapse(why error) {
	s.last.Store(&why)
	s.lapses.Add(1)
}

// err returns what one of them says that is silent, or nil.
func (s *silence) err() error {
	all := s.by.Load()
	if all == nil {
		return nil
	}
	for _, silent := range *all {
		if err := (*silent)(); err != nil {
			return err
		}
	}
	return nil
}

// follow asks another worker, too, until stop is called.
func (s *silence) follow(silent func() error) (stop func()) {
	mine := &silent
	s.change(func(all []*func() error) []*func() error { return append(all, mine) })
	return func() {
		s.change(func(all []*func() error) []*func() error {
			return slices.DeleteFunc(all, func(each *func() error) bool { return each == mine })
		})
	}
}

// change replaces the functions by a changed copy.
func (s *silence) change(change func([]*func() error) []*func() error) {
	for {
		before := s.by.Load()
		var all []*func() error
		if before != nil {
			all = append(all, *before...)
		}
		if all = change(all); s.by.CompareAndSwap(before, &all) {
			return
		}
	}
}

// endWhenSilent has the leases of the Locker end with the error that silent returns, once it returns one. lapsed ends those that
// have begun before, although it may not return one any more.
func (s *Single) endWhenSilent(silent func() error) (lapsed func(why error), stop func()) {
	lapsed = func(why error) {
		s.suspension.silence.lapse(why)
		s.suspension.look()
	}
	return lapsed, s.suspension.silence.follow(silent)
}

func (g *Gate) endWhenSilent(silent func() error) (lapsed func(why error), stop func()) {
	return endWhenSilent(g.inner, silent)
}

func endWhenSilent(locker any, silent func() error) (lapsed func(why error), stop func()) {
	if l, ok := locker.(interface {
		endWhenSilent(silent func() error) (lapsed func(why error), stop func())
	}); ok {
		return l.endWhenSilent(silent)
	}
	return func(error) {}, func() {}
}
