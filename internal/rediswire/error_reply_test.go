package rediswire

import (
	"errors"
	"testing"
)

// The texts are those of Redis 6.2.14 and 7.0.15.
func TestErrorRepliesMeanTheSameOnEveryRedis(t *testing.T) {
	t.Parallel()
	const running = "ERR Error running script (call to f_78d0026b7ddfb8a24ad97596d84fb1f71f777d4a): @user_script:1: "
	for name, tc := range map[string]struct {
		reply, command string
		transient      bool
	}{
		"OOM on 6.2": {
			running + "@user_script: 1: -OOM command not allowed.", "OOM command not allowed.",
			true,
		},
		"OOM on 7": {
			"OOM command not allowed. script: 78d0, on @user_script:1.",
			"OOM command not allowed. script: 78d0, on @user_script:1.", true,
		},
		"READONLY on 6.2": {
			running + "@user_script: 17: -READONLY You can't write", "READONLY You can't write",
			true,
		},
		"in a batch on 6.2": {"ERR @user_script: 17: -READONLY You can't write", "READONLY You can't write", true},
		"wrong type on 6.2": {
			running + "WRONGTYPE Operation against a key", "WRONGTYPE Operation against a key",
			false,
		},
		"wrong type on 7": {"WRONGTYPE Operation against a key", "WRONGTYPE Operation against a key", false},
		"no permission on 6.2": {
			running + "@user_script: 1: The user executing the script can't run this command",
			"ERR The user executing the script can't run this command", true,
		},
		"no permission on 7": {
			"NOPERM No permissions to access a key", "NOPERM No permissions to access a key",
			true,
		},
		"loading": {
			"LOADING Redis is loading the dataset in memory",
			"LOADING Redis is loading the dataset in memory", true,
		},
		"no master has the slot": {"MOVED 14374 127.0.0.1:7001", "MOVED 14374 127.0.0.1:7001", true},
		"a move without an end":  {"ASK 14374 127.0.0.1:7001", "ASK 14374 127.0.0.1:7001", true},
		"full":                   {"ERR max number of clients reached", "ERR max number of clients reached", true},
		"a word of its own":      {"ERR no -OOM here", "ERR no -OOM here", false},
		"the script's fault": {
			running + "attempt to compare nil with number",
			"ERR attempt to compare nil with number", false,
		},
		"nothing": {"", "", false},
	} {
		if got := Command(tc.reply); got != tc.command {
			t.Errorf("%s: the command said %q, want %q", name, got, tc.command)
		}
		if got := IsTransient(tc.reply); got != tc.transient {
			t.Errorf("%s: transient is %t", name, got)
		}
	}
}

// The texts are those of Redis 7.0.15, Valkey 9.1.2 without its module for Lua, and of the documentation of Dragonfly and Envoy.
func TestWhatAServerLacksIsToldFromWhatItRefuses(t *testing.T) {
	t.Parallel()
	for reply, want := range map[string]bool{
		"ERR unknown command 'lpos', with args beginning with: 'x'":                     true,
		"ERR Could not find scripting engine 'lua'":                                     true,
		"ERR unsupported command 'eval'":                                                true,
		"unsupported command 'eval'":                                                    true,
		"ERR Error running script (call to f_1): script tried accessing undeclared key": true,
		"OOM command not allowed when used memory > 'maxmemory'.":                       false,
		"NOPERM User worker has no permissions to run the 'lpos' command":               false,
		"MOVED 3999 127.0.0.1:6381":                                                     false,
		"WRONGTYPE Operation against a key holding the wrong kind of value":             false,
		"NOSCRIPT No matching script.":                                                  false,
		"ERR value is not an integer or out of range":                                   false,
		"CROSSSLOT Keys in request don't hash to the same slot":                         false,
	} {
		if got := IsLacking(replied(reply)); got != want {
			t.Errorf("%q: %t", reply, got)
		}
	}
	if IsLacking(nil) || IsLacking(errors.New("dial tcp: unknown command")) {
		t.Error("an error that is no reply lacks something")
	}
}

// replied is an error reply of a server.
type replied string

func (r replied) Error() string { return string(r) }
func (r replied) RedisError()   {}
