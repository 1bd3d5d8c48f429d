package colocated

import (
	"context"
	"sync"
)

// Release is the release of the locks of a task. It is carried out once: by the script that acknowledges the task
// ([Release.Answered]), or on its own ([Release.Run]).
type Release struct {
	Keys  []string // lock, fence counter and subscription of each
	Owner string
	Tops  []int64 // the last token of each
	// Strict says that the task is not done if one of its locks was another owner's before the acknowledgement.
	Strict bool
	// Kept says that the locks have a next holder in this process: the script does not release them, and does not see
	// whether they were lost. HandsOff says that they may have one.
	Kept, HandsOff bool
	// Awaited says that callers of this process wait for one of the keys, and come before tasks that are parked.
	Awaited bool
	// Wakes is how many tasks the script wakes that are parked on each key. Those that will not have it at once, because the
	// locks are Kept or others come first, are woken only if the fetch of the script takes them. They need no slot.
	Wakes int
	// Place says what the end of the run makes of the task's place in the sequence of its key, which is the only one.
	Place Place

	send func(ctx context.Context, sent bool) (Outcome, error)
	then []func(Outcome, error)
	late func()
	once sync.Once
}

// Locks adds the locks alone to a list.
func (r *Release) Locks(to []string) []string {
	for i := 0; i < len(r.Keys); i += 3 {
		to = append(to, r.Keys[i])
	}
	return to
}

// Place is what becomes of the place of a task whose run ends.
type Place string

// The Places: the task has none, gives it up, or keeps it and holds up the others.
const (
	NoPlace Place = ""
	Leaves  Place = "leaves"
	Stays   Place = "stays"
)

// Outcome is the outcome of a release.
type Outcome struct {
	Scripted bool    // the script that acknowledges the task has carried it out, and taken the task from its place if it leaves
	Lost     int     // position of the first key that another owner has, or has had, since; 0 for none
	Foreign  bool    // that owner knows no fence counters: it is a program that wakes no task
	Notify   bool    // another caller waits for one of the keys
	Parked   bool    // tasks are parked on one of them and none was woken, as far as is known: the caller wakes them
	Woken    []Woken // what was woken
}

// Woken are the tasks that the script which has released a key has moved to the heads of their queues.
type Woken struct {
	Key     int // its position, from 1
	Left    int // how many tasks are still parked on it
	Pending int // how many of the woken ones the fetch of the script has not taken
	Entries []string
}

// NewRelease returns a Release. send carries it out on its own; sent says that a script may have done so before.
func NewRelease(keys []string, owner string, tops []int64,
	send func(ctx context.Context, sent bool) (Outcome, error),
) *Release {
	return &Release{Keys: keys, Owner: owner, Tops: tops, send: send}
}

// Then registers a callback for the outcome; callbacks run in the order of their registration. Call it before the release
// is carried out.
func (r *Release) Then(do func(Outcome, error)) { r.then = append(r.then, do) }

// IfLate sets what [Release.Late] calls. It must be called before the release is carried out.
func (r *Release) IfLate(do func()) { r.late = do }

// Late says that the release takes long: callers of this process no longer wait for it.
func (r *Release) Late() {
	if r.late != nil {
		r.late()
	}
}

// Scripted reports whether a script can carry out the release. If not, it is run at once: nothing is gained by keeping the
// locks for the acknowledgement.
func (r *Release) Scripted() bool { return r.Owner != "" }

// Answered notes that a script has carried out the release.
func (r *Release) Answered(o Outcome) { r.once.Do(func() { r.end(o, nil) }) }

// Run carries the release out on its own, unless it is over. sent says that a script may have done so before.
func (r *Release) Run(ctx context.Context, sent bool) {
	r.once.Do(func() { r.end(r.send(ctx, sent)) })
}

func (r *Release) end(o Outcome, err error) {
	for _, do := range r.then {
		do(o, err)
	}
}
