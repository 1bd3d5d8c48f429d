package locking

import (
	"errors"
	"fmt"
	"net"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/pipeline"
	"github.com/railtoken/railtoken/internal/restartguard"
)

// replyError is an error reply of a server.
type replyError string

func (e replyError) Error() string { return string(e) }

// RedisError makes it a [redis.Error].
func (replyError) RedisError() {}

func TestOutcomeOfACall(t *testing.T) {
	t.Parallel()
	dial := &net.OpError{Op: "dial", Err: errors.New("connection refused")}
	for name, tc := range map[string]struct {
		err  error
		want outcome
	}{
		"executed":                   {nil, answered},
		"refused by the server":      {replyError("ERR value is not an integer"), answered},
		"a value of other programs":  {replyError("WRONGTYPE Operation against a key"), unsent},
		"refused by the guard":       {&restartguard.RefusedError{Reason: restartguard.Young}, unsent},
		"refused for a reply":        {&restartguard.RefusedError{Err: replyError("WRONGTYPE of INFO")}, unsent},
		"a wrong password":           {replyError("WRONGPASS invalid username-password pair"), unsent},
		"no password":                {replyError("NOAUTH Authentication required."), unsent},
		"a script that is forbidden": {replyError("NOPERM no permissions to run the 'evalsha' command"), unsent},
		"a command of a script":      {replyError("NOPERM in script: no permissions to run 'get'"), answered},
		"not sent":                   {fmt.Errorf("%w: %w", pipeline.ErrNotSent, replyError("OOM")), unsent},
		"a closed client":            {redis.ErrClosed, unsent},
		"loading":                    {replyError("LOADING Redis is loading the dataset in memory"), unsent},
		"out of memory":              {replyError("OOM command not allowed. script: 78d0, on @user_script:1."), unsent},
		"a replica": {
			replyError("ERR Error running script (call to f_78d0): @user_script:1: @user_script: 1: -READONLY You can't write"), unsent,
		},
		"no snapshot":                 {replyError("MISCONF Redis is configured to save RDB snapshots"), unsent},
		"another node":                {replyError("MOVED 14374 127.0.0.1:7001"), unsent},
		"too many clients":            {replyError("ERR max number of clients reached"), unsent},
		"no connection":               {dial, unsent},
		"a connection that was reset": {&net.OpError{Op: "read", Err: errors.New("reset")}, unknown},
	} {
		if got := outcomeOf(tc.err); got != tc.want {
			t.Errorf("%s: outcome %d, want %d", name, got, tc.want)
		}
	}
}
