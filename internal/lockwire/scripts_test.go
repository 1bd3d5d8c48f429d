package lockwire_test

import (
	"testing"

	"github.com/railtoken/railtoken/internal/lockwire"
	"github.com/railtoken/railtoken/internal/testing/redistest"
)

// A Redis before 7 writes where in a script an error was.
func TestAnErrorOfABatchIsThatOfItsCall(t *testing.T) {
	t.Parallel()
	_, client := redistest.Virtual(t)
	for failure, want := range map[string]string{
		"@user_script: 12: -OOM command not allowed":             "OOM command not allowed",
		"@user_script:12: READONLY You can't write":              "READONLY You can't write",
		"@globals:9: attempt to index":                           "ERR attempt to index",
		"=user_script:-1: -BUSY Redis is busy":                   "BUSY Redis is busy",
		"WRONGTYPE Operation against a key of the wrong kind":    "WRONGTYPE Operation against a key of the wrong kind",
		"attempt to compare nil with number, @user_script: 12: ": "ERR attempt to compare nil with number, @user_script: 12: ",
	} {
		if got, err := client.Eval(t.Context(), lockwire.Script("return plain(ARGV[1])"), nil, failure).Text(); got != want || err != nil {
			t.Errorf("%q becomes %q, %v; want %q", failure, got, err, want)
		}
	}
}
