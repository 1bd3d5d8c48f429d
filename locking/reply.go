package locking

import (
	"regexp"
	"slices"
	"strings"
)

// transient are the first words of the error replies of a Redis that may serve again soon.
var transient = []string{"LOADING", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "OOM", "BUSY", "MISCONF", "NOREPLICAS"}

// isTransient reports whether an error reply is that of a server that may serve again soon.
func isTransient(reply string) bool {
	word, _, _ := strings.Cut(commandError(reply), " ")
	return slices.Contains(transient, word) || reply == "ERR max number of clients reached"
}

// wrapped is what Redis before version 7 puts in front of the error of a command in a script: the name of the script, and the
// position once or twice; some errors then begin with a minus.
var wrapped = regexp.MustCompile(`^ERR (?:Error running script \(call to \w+\): )?(?:@user_script: ?\d+: )+-?`)

// coded is how every error begins on Redis 7, and most before: with a word that says its kind.
var coded = regexp.MustCompile(`^[A-Z]+ `)

// commandError returns the error of the command that has failed in a script, for every version of Redis as Redis 7 has it. Any other
// error reply it returns as it is.
func commandError(reply string) string {
	front := wrapped.FindString(reply)
	if front == "" || coded.MatchString(reply[len(front):]) {
		return reply[len(front):]
	}
	return "ERR " + reply[len(front):]
}
