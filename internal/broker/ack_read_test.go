package broker

import "testing"

// What an acknowledgement does is read from asynq's script; with an unknown asynq from its keys alone.
func TestAnAcknowledgementIsReadFromItsScript(t *testing.T) {
	t.Parallel()
	task, prefix := "asynq:{q}:t:a", "asynq:{q}:t:"
	keys := []string{"asynq:{q}:active", "asynq:{q}:lease", task}
	for _, tc := range []struct {
		script string
		keys   []string
		args   []any
		want   Acknowledgement
		ok     bool
	}{
		{"done", keys, nil, Acknowledgement{Script: "done", Queue: "q", ID: "a"}, true},
		{"done", keys[:2], nil, Acknowledgement{Script: "done"}, false},
		{"retry", keys, []any{"a", "m", 1, 2, true}, Acknowledgement{Script: "retry", Queue: "q", ID: "a", Counted: true}, true},
		{"retry", keys, []any{"a", "m", 1, 2, false}, Acknowledgement{Script: "retry", Queue: "q", ID: "a"}, true},
		{"retry", keys, []any{"a", "m", 1, 2}, Acknowledgement{Script: "retry", Queue: "q", ID: "a"}, false},
		{
			"archive", append(keys[:3:3], prefix),
			[]any{"a", []byte("message"), 1700, 2, true},
			Acknowledgement{Script: "archive", Queue: "q", ID: "a", Message: "message", ArchivedAt: "1700"},
			true,
		},
		{"archive", keys, []any{"a", "m", 1, 2}, Acknowledgement{Script: "archive", Queue: "q", ID: "a"}, false},
		{"markAsComplete", keys, []any{1, 2, 3, "m"}, Acknowledgement{Script: "markAsComplete", Queue: "q", ID: "a", Message: "m"}, true},
		{"markAsCompleteUnique", keys, []any{1, 2, 3}, Acknowledgement{Script: "markAsCompleteUnique", Queue: "q", ID: "a"}, false},
		{"", keys, nil, Acknowledgement{Queue: "q", ID: "a"}, true},
		{"", append([]string{"asynq:{q}:pending"}, keys...), nil, Acknowledgement{Script: "requeue", Queue: "q", ID: "a"}, true},
		{"", append(keys[:3:3], "asynq:{q}:pending"), nil, Acknowledgement{Script: "requeue", Queue: "q", ID: "a"}, true},
	} {
		if got, ok := acknowledgement(tc.script, tc.keys, tc.args); ok != tc.ok || got != tc.want {
			t.Errorf("%q of %v with %v: %+v, %v", tc.script, tc.keys, tc.args, got, ok)
		}
	}
}

func TestAnAcknowledgementTellsWhatBecomesOfTheTask(t *testing.T) {
	t.Parallel()
	for script, want := range map[string]struct{ archives, completes, requeues bool }{
		"done": {completes: true}, "doneUnique": {completes: true}, "markAsComplete": {completes: true},
		"markAsCompleteUnique": {completes: true}, "archive": {archives: true}, "requeue": {requeues: true}, "retry": {}, "": {},
	} {
		a := Acknowledgement{Script: script}
		if a.Archives() != want.archives || a.Completes() != want.completes || a.Requeues() != want.requeues ||
			a.Ends() != (want.archives || want.completes) {
			t.Errorf("%q archives %v, completes %v, requeues %v, ends %v", script, a.Archives(), a.Completes(), a.Requeues(), a.Ends())
		}
	}
}
