package pglock

// MakeCleaningDue makes the next release clean up.
func MakeCleaningDue(l Locker) {
	switch l := l.(type) {
	case *locker:
		l.store.cleaned.Store(0)
	case *listeningLocker:
		l.store.cleaned.Store(0)
	}
}

// What the fuzz test needs of the inside.
var (
	Stored = stored
	Array  = array
)
