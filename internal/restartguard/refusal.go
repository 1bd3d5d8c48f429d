package restartguard

import (
	"errors"
	"fmt"
	"time"
)

// ErrRefused reports that a server may not vote now, so it was not asked for a lock. The error that matches it is a
// [RefusedError].
var ErrRefused = errors.New("locking: server may not vote")

// Reason is why a server may not vote.
type Reason string

// The reasons for a refusal.
const (
	Young       Reason = "nobody has watched its process for the longest TTL"
	Replaced    Reason = "another process answers in its place"
	Promoted    Reason = "it was promoted after a failover"
	NotMaster   Reason = "it is not a master"
	Skewed      Reason = "its clock is too far from this machine's"
	Evicting    Reason = "it evicts keys when its memory is full"
	Duplicate   Reason = "it is the server of another node"
	NoRunID     Reason = "it has no run_id"
	Unreadable  Reason = "its INFO cannot be read"
	Unreachable Reason = "it cannot be reached"
)

// remedies says what an operator can do about each reason.
var remedies = map[Reason]string{
	Young: "nothing needs to be done while this process runs: the server votes when the locks that it may have " +
		"forgotten have expired (in tests turn the guard off)",
	Replaced: "let the address lead to one server only, or wait: " +
		"it votes when the locks of the one before have expired",
	Promoted:    "nothing needs to be done: it votes when the locks that it may not have received have expired",
	NotMaster:   "name masters that have no other node as their master",
	Skewed:      "synchronize both clocks",
	Evicting:    "set maxmemory-policy noeviction",
	Duplicate:   "name each server once; restart this process when the addresses of two nodes were exchanged",
	NoRunID:     "name a Redis 6.2 or later, or turn the guard off",
	Unreadable:  "check the user and the password, and let this user run INFO and TIME",
	Unreachable: "check the address and the server",
}

// RefusedError says why a server may not vote, and when it is checked again. It matches [ErrRefused], and the error
// that caused it, if any.
type RefusedError struct {
	// Node is the position of the node in the Redlock, counted from 0.
	Node int
	// Addr is the node's address; empty if unknown.
	Addr   string
	Reason Reason
	// Cause is the observation.
	Cause string
	// Remedy is what an operator can do.
	Remedy string
	// Until is when the server is checked again.
	Until time.Time
	// Err is the error that caused the refusal, or nil.
	Err error
}

// refuse returns a refusal that does not name the node yet.
func refuse(reason Reason, until time.Time, format string, args ...any) *RefusedError {
	return &RefusedError{Reason: reason, Cause: fmt.Sprintf(format, args...), Remedy: remedies[reason], Until: until}
}

// Error names the node, the observation, and the remedy.
func (r *RefusedError) Error() string {
	where := ""
	if r.Addr != "" {
		where = " (" + r.Addr + ")"
	}
	return fmt.Sprintf("locking: node %d%s may not vote: %s: %s; %s; checked again from %s",
		r.Node, where, r.Reason, r.Cause, r.Remedy, r.Until.UTC().Format("2006-01-02T15:04:05.000Z"))
}

// Is reports whether target is [ErrRefused].
func (r *RefusedError) Is(target error) bool { return target == ErrRefused }

// Unwrap returns the error that caused the refusal, if any. It returns a list because go-redis v9.23 replaces an error
// of OnConnect by its errors.Unwrap, which ignores lists: see TestServerThatTellsNothingIsUnreadable.
func (r *RefusedError) Unwrap() []error {
	if r.Err == nil {
		return nil
	}
	return []error{r.Err}
}
