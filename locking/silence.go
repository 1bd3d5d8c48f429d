package locking

import (
	"slices"
	"sync/atomic"
)

// silence says whether the workers that share a Locker have been silent for so long that others may have taken their keys, although the
// locks would have lasted longer. The zero value says no. It is safe for concurrent use.
type silence struct {
	by     atomic.Pointer[[]*listener]
	lapses atomic.Int64          // how often a worker was silent for so long
	last   atomic.Pointer[error] // what it has said then
}

// listener is a worker that has leases end once it is silent: then silent returns why.
type listener struct {
	name   string
	silent func() error
}

// worker returns the name of the worker that locks may tell which are taken now: one that has leases end once it is silent, and is not.
// It is "" if there is none. Nobody takes any other lock from its holder for a silence.
func (s *silence) worker() string {
	all := s.by.Load()
	if all == nil || len(*all) == 0 || s.err() != nil {
		return ""
	}
	return (*all)[0].name
}

// over returns why a lease whose locks tell a worker has ended, if it began after so many lapses; nil if it has not.
func (s *silence) over(lapses int64) error {
	if err := s.err(); err != nil {
		return err
	}
	if s.lapses.Load() == lapses {
		return nil
	}
	return *s.last.Load()
}

// lapse ends all leases whose locks tell a worker and that began before, also those of calls that have not been answered yet.
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
	for _, f := range *all {
		if err := f.silent(); err != nil {
			return err
		}
	}
	return nil
}

// follow asks another worker, too, until stop is called.
func (s *silence) follow(name string, silent func() error) (stop func()) {
	mine := &listener{name, silent}
	s.change(func(all []*listener) []*listener { return append(all, mine) })
	return func() {
		s.change(func(all []*listener) []*listener {
			return slices.DeleteFunc(all, func(each *listener) bool { return each == mine })
		})
	}
}

// change replaces the listeners by a changed copy.
func (s *silence) change(change func([]*listener) []*listener) {
	for {
		before := s.by.Load()
		var all []*listener
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
func (s *Single) endWhenSilent(name string, silent func() error) (lapsed func(why error), stop func()) {
	lapsed = func(why error) {
		s.suspension.silence.lapse(why)
		s.suspension.look()
	}
	return lapsed, s.suspension.silence.follow(name, silent)
}

func (g *Gate) endWhenSilent(name string, silent func() error) (lapsed func(why error), stop func()) {
	return endWhenSilent(g.inner, name, silent)
}

func endWhenSilent(locker any, name string, silent func() error) (lapsed func(why error), stop func()) {
	if l, ok := locker.(interface {
		endWhenSilent(name string, silent func() error) (lapsed func(why error), stop func())
	}); ok {
		return l.endWhenSilent(name, silent)
	}
	return func(error) {}, func() {}
}
