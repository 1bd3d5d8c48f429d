package locking

import (
	"slices"
	"sync/atomic"
)

// silence says whether the workers that share a Locker have been silent for so long that another process may have taken their
// keys, although the locks would have lasted longer. The zero value says no. It is safe for concurrent use.
type silence struct {
	by atomic.Pointer[[]*func() error]
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

// endWhenSilent has the leases of the Locker end with the error that silent returns, once it returns one. look has them look
// at once.
func (s *Single) endWhenSilent(silent func() error) (look, stop func()) {
	return s.suspension.look, s.suspension.silence.follow(silent)
}

func (g *Gate) endWhenSilent(silent func() error) (look, stop func()) {
	return endWhenSilent(g.inner, silent)
}

func endWhenSilent(locker any, silent func() error) (look, stop func()) {
	if l, ok := locker.(interface {
		endWhenSilent(silent func() error) (look, stop func())
	}); ok {
		return l.endWhenSilent(silent)
	}
	return func() {}, func() {}
}
