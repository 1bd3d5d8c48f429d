package locking

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
)

// transient are the first words of the error replies of a Redis that may serve again soon; the last three need an
// operator.
var transient = []string{
	"LOADING", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "OOM", "BUSY", "MISCONF", "NOREPLICAS",
	"NOPERM", "NOAUTH", "WRONGPASS",
}

// isTransient reports whether an error reply is that of a server that may serve again soon.
func isTransient(reply string) bool {
	word, _, _ := strings.Cut(commandError(reply), " ")
	return slices.Contains(transient, word) || isForbidden(reply) || reply == "ERR max number of clients reached"
}

// isForbidden reports whether an error reply says that the user lacks a permission. Redis 6.2 words it differently in a
// script.
func isForbidden(reply string) bool {
	return strings.HasPrefix(reply, "NOPERM") ||
		strings.HasPrefix(commandError(reply), "ERR The user executing the script ")
}

// withRules adds the missing ACL rules to the error of a forbidden user.
func withRules(err error) error {
	if reply, ok := errors.AsType[redis.Error](err); ok && isForbidden(reply.Error()) {
		return fmt.Errorf("%w: give the user of Redis the ACL rules "+
			"~railtoken:* &railtoken:* +@all -@dangerous +info", err)
	}
	return err
}

// isUnrun reports whether err is a refusal of the user before the script has run.
func isUnrun(err error) bool {
	reply, ok := errors.AsType[redis.Error](err)
	return ok && strings.HasPrefix(reply.Error(), "NOPERM") && !strings.Contains(reply.Error(), "script")
}

// wrapped is what Redis before version 7 puts before the error of a command in a script: the name of the script, and
// the position once or twice; some errors then begin with a minus.
var wrapped = regexp.MustCompile(`^ERR (?:Error running script \(call to \w+\): )?(?:@user_script: ?\d+: )+-?`)

// coded is how every error begins on Redis 7, and most before: with a word for its kind.
var coded = regexp.MustCompile(`^[A-Z]+ `)

// commandError returns the error of the command that has failed in a script, as Redis 7 words it. It returns any other
// error reply unchanged.
func commandError(reply string) string {
	front := wrapped.FindString(reply)
	if front == "" || coded.MatchString(reply[len(front):]) {
		return reply[len(front):]
	}
	return "ERR " + reply[len(front):]
}
