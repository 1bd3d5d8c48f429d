package lockhistorytest

import "testing"

// JudgeRefusesBadHistories fails the test unless linearizable tells the histories of locks from others.
func JudgeRefusesBadHistories(tb testing.TB, linearizable func([]Operation) bool) {
	tb.Helper()
	begins := func(token, call, end int64) Operation {
		return Operation{int(token), Event{Token: token}, call, end}
	}
	ends := func(token, call, end int64) Operation {
		return Operation{int(token), Event{Token: token, Ends: true}, call, end}
	}
	for name, tt := range map[string]struct {
		history []Operation
		good    bool
	}{
		"one after another":        {[]Operation{begins(1, 0, 1), ends(1, 2, 3), begins(2, 4, 5)}, true},
		"granted while it ends":    {[]Operation{begins(1, 0, 1), ends(1, 2, 6), begins(2, 3, 4)}, true},
		"release unanswered":       {[]Operation{begins(1, 0, 1), ends(1, 2, Never), begins(2, 8, 9)}, true},
		"two holders":              {[]Operation{begins(1, 0, 1), begins(2, 2, 3), ends(1, 4, 5), ends(2, 6, 7)}, false},
		"a smaller token":          {[]Operation{begins(2, 0, 1), ends(2, 2, 3), begins(1, 4, 5)}, false},
		"a token that comes again": {[]Operation{begins(1, 0, 1), ends(1, 2, 3), begins(1, 4, 5)}, false},
	} {
		if good := linearizable(tt.history); good != tt.good {
			tb.Errorf("%s: %v", name, good)
		}
	}
}
