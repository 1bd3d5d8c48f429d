package rediswire

import "testing"

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
