package rediswire

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Class is the first word of an error reply. No other Go file spells one.
type Class string

// The classes of error replies.
const (
	Ask         Class = "ASK"
	Busy        Class = "BUSY"
	ClusterDown Class = "CLUSTERDOWN"
	CrossSlot   Class = "CROSSSLOT"
	Loading     Class = "LOADING"
	MasterDown  Class = "MASTERDOWN"
	Misconf     Class = "MISCONF"
	Moved       Class = "MOVED"
	NoAuth      Class = "NOAUTH"
	NoPerm      Class = "NOPERM"
	NoReplicas  Class = "NOREPLICAS"
	NoScript    Class = "NOSCRIPT"
	OOM         Class = "OOM"
	ReadOnly    Class = "READONLY"
	TryAgain    Class = "TRYAGAIN"
	WrongPass   Class = "WRONGPASS"
	WrongType   Class = "WRONGTYPE"
)

// Says reports whether err is an error reply of one of these classes.
func Says(err error, classes ...Class) bool {
	if err == nil { // nearly always
		return false
	}
	reply, ok := errors.AsType[redis.Error](err)
	return ok && slices.Contains(classes, classOf(reply.Error()))
}

func classOf(reply string) Class {
	word, _, _ := strings.Cut(Command(reply), " ")
	return Class(word)
}

// IsFull reports whether err says that the server accepts no more connections.
func IsFull(err error) bool {
	reply, ok := errors.AsType[redis.Error](err)
	return ok && isFull(reply.Error())
}

func isFull(reply string) bool { return strings.HasPrefix(reply, "ERR max number of clients") }

// IsFinal reports whether a server has refused a call for what it asks, so that it would refuse it again. The words NOT
// and EXECABORT begin errors of asynq's scripts and of transactions.
func IsFinal(err error) bool {
	return Says(err, "ERR", NoPerm, WrongType, "NOT", CrossSlot, "EXECABORT") && !IsFull(err)
}

// transient are the classes after which a Redis may serve again soon. A cluster client has followed MOVED and ASK as often
// as it may. The last three need an operator.
var transient = []Class{
	Loading, ReadOnly, MasterDown, ClusterDown, TryAgain, Moved, Ask, OOM, Busy, Misconf, NoReplicas, NoPerm, NoAuth, WrongPass,
}

// IsTransient reports whether a server with this error reply may serve again soon.
func IsTransient(reply string) bool {
	return slices.Contains(transient, classOf(reply)) || isForbidden(reply) || isFull(reply)
}

// isForbidden reports whether an error reply says that the user lacks a permission. In a script, Redis 6.2 words it
// differently.
func isForbidden(reply string) bool {
	return classOf(reply) == NoPerm || strings.HasPrefix(Command(reply), "ERR The user executing the script ")
}

// WithRules adds the missing ACL rules to the error of a forbidden user.
func WithRules(err error) error {
	if reply, ok := errors.AsType[redis.Error](err); ok && isForbidden(reply.Error()) {
		return fmt.Errorf("%w: give the user of Redis the ACL rules "+
			"~railtoken:* &railtoken:* +@all -@dangerous +info, with the prefix of the namespace if there is one", err)
	}
	return err
}

// IsUnrun reports whether err says that the user may not log in or run the script, so that it has not run.
func IsUnrun(err error) bool {
	return Says(err, WrongPass, NoAuth) || Says(err, NoPerm) && !strings.Contains(err.Error(), "script")
}

// refusals are the classes after which nothing of a script has been executed: Redis refuses the call itself, or the first
// write of the script.
var refusals = []Class{
	Loading, ReadOnly, MasterDown, ClusterDown, TryAgain, Moved, Ask, CrossSlot, OOM, Busy, Misconf, NoReplicas, NoScript,
}

// IsRefusal reports whether err is an error reply that says that the script has changed nothing, if its first command
// that can fail is a write. Sent again later, the call may succeed.
func IsRefusal(err error) bool {
	return Says(err, refusals...) || IsUnrun(err) || IsFull(err)
}

// IsMoving reports whether a server of a Redis Cluster has refused a script because the slot of its keys is moving to
// another server.
func IsMoving(err error) bool { return Says(err, TryAgain) }

// IsUnserved reports whether the servers of a Redis Cluster have sent a client to each other as often as it goes, so
// that none has run the script. For a moment at the end of a move, the server that had the slot may already have given
// it up while the other one has not taken it over.
func IsUnserved(err error) bool { return Says(err, Moved, Ask) }

// IsForeign reports whether err says that another program uses the Redis key of a lock or of its fence counter. A lock
// script that ends so has taken nothing.
func IsForeign(err error) bool {
	reply, ok := errors.AsType[redis.Error](err)
	if !ok {
		return false
	}
	text := strings.TrimPrefix(Command(reply.Error()), "ERR ")
	return strings.HasPrefix(text, "WRONGTYPE ") || strings.HasPrefix(text, "FOREIGN ")
}

// wrapped matches what Redis before version 7 puts in front of the error of a command in a script: the name of the
// script, its position once or twice, and sometimes a minus.
var wrapped = regexp.MustCompile(`^ERR (?:Error running script \(call to \w+\): )?(?:@user_script: ?\d+: )+-?`)

// coded matches the error code with which every error of Redis 7 begins, and most of earlier versions.
var coded = regexp.MustCompile(`^[A-Z]+ `)

// Command returns the error of the command that failed in a script, as Redis 7 words it. Other error replies are
// returned unchanged.
func Command(reply string) string {
	front := wrapped.FindString(reply)
	if front == "" || coded.MatchString(reply[len(front):]) {
		return reply[len(front):]
	}
	return "ERR " + reply[len(front):]
}

// absent are parts of the replies of servers, proxies and services that lack a command, an engine for scripts, or the keys that a script finds
// by itself: Redis and Valkey, Valkey without its module for Lua, Envoy, Dragonfly.
var absent = []string{"unknown command", "unknown redis command", "unsupported command", "not supported", "could not find scripting engine", "undeclared key"}

// IsLacking reports whether a server cannot do what a call asks, whoever asks.
func IsLacking(err error) bool {
	reply, ok := errors.AsType[redis.Error](err)
	return ok && slices.ContainsFunc(absent, func(part string) bool { return strings.Contains(strings.ToLower(reply.Error()), part) })
}
