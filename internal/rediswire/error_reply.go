package rediswire

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
)

// transient lists the first words of error replies after which a Redis may serve again soon. A cluster client has
// followed MOVED and ASK as often as it may. The last three need an operator.
var transient = []string{
	"LOADING", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "MOVED", "ASK", "OOM", "BUSY", "MISCONF",
	"NOREPLICAS", "NOPERM", "NOAUTH", "WRONGPASS",
}

// IsTransient reports whether a server with this error reply may serve again soon.
func IsTransient(reply string) bool {
	word, _, _ := strings.Cut(Command(reply), " ")
	return slices.Contains(transient, word) || isForbidden(reply) || reply == "ERR max number of clients reached"
}

// isForbidden reports whether an error reply says that the user lacks a permission. In a script, Redis 6.2 words it
// differently.
func isForbidden(reply string) bool {
	return strings.HasPrefix(reply, "NOPERM") ||
		strings.HasPrefix(Command(reply), "ERR The user executing the script ")
}

// WithRules adds the missing ACL rules to the error of a forbidden user.
func WithRules(err error) error {
	if reply, ok := errors.AsType[redis.Error](err); ok && isForbidden(reply.Error()) {
		return fmt.Errorf("%w: give the user of Redis the ACL rules "+
			"~railtoken:* &railtoken:* +@all -@dangerous +info", err)
	}
	return err
}

// IsUnrun reports whether err says that the user may not log in or run the script, so that it has not run.
func IsUnrun(err error) bool {
	reply, ok := errors.AsType[redis.Error](err)
	if !ok {
		return false
	}
	text := reply.Error()
	return strings.HasPrefix(text, "WRONGPASS") || strings.HasPrefix(text, "NOAUTH") ||
		strings.HasPrefix(text, "NOPERM") && !strings.Contains(text, "script")
}

// refusals lists the first words of error replies after which nothing of a script has been executed: Redis refuses the
// call itself, or the first write of the script.
var refusals = []string{
	"LOADING", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "MOVED", "ASK", "CROSSSLOT", "OOM", "BUSY", "MISCONF",
	"NOREPLICAS", "NOSCRIPT",
}

// IsRefusal reports whether err is an error reply that says that the script has changed nothing, if its first command
// that can fail is a write. Sent again later, the call may succeed.
func IsRefusal(err error) bool {
	reply, ok := errors.AsType[redis.Error](err)
	if !ok {
		return false
	}
	word, _, _ := strings.Cut(Command(reply.Error()), " ")
	return slices.Contains(refusals, word) || IsUnrun(err) || reply.Error() == "ERR max number of clients reached"
}

// IsMoving reports whether a server of a Redis Cluster has refused a script because the slot of its keys is moving to
// another server. HasErrorPrefix allocates for nil, too.
func IsMoving(err error) bool { return err != nil && redis.HasErrorPrefix(err, "TRYAGAIN") }

// IsUnserved reports whether the servers of a Redis Cluster have sent a client to each other as often as it goes, so
// that none has run the script. For a moment at the end of a move, the server that had the slot may already have given
// it up while the other one has not taken it over.
func IsUnserved(err error) bool {
	return redis.HasErrorPrefix(err, "MOVED") || redis.HasErrorPrefix(err, "ASK")
}

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
