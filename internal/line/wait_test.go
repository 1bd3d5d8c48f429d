package line_test

import (
	"math"
	"reflect"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/line"
)

// What Go writes, the scripts read and write again, and Go reads what it was.
func TestGoAndTheScriptsAgreeOnTheRecord(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		task := r.Delayed("a")
		again := redis.NewScript(line.Composed("write(KEYS[1], recordOf(KEYS[1]))\nreturn redis.call('HGET', KEYS[1], 'railtoken:wait')"))
		first := time.UnixMicro(1_795_728_149_419_691)
		for name, w := range map[string]line.Wait{
			"none":         {},
			"full":         {Attempt: 3, Deadline: 4_000_000_000, Conflict: line.Conflict{Count: 7, First: first}, Place: 1, RetryAfter: time.Hour, Own: true, Keys: []string{"k"}},
			"several keys": {Conflict: line.Conflict{Count: 1, First: first}, Place: first.UnixMicro() + 68, Keys: []string{"a key {%}", "", "order:1"}},
			"far away":     {Deadline: math.MaxInt32 + 1, Conflict: line.Conflict{Count: 1 << 50}, Place: 1 << 52},
			"a past one":   {Deadline: -1, Place: -5},
		} {
			r.set(task, line.WaitField, w.String())
			text, err := again.Run(t.Context(), r.Client, []string{task.Hash()}).Text()
			if err != nil || text != w.String() {
				t.Errorf("%s: %q becomes %q, %v", name, w.String(), text, err)
			}
			if got := line.ParseWait(text); !reflect.DeepEqual(got, w) {
				t.Errorf("%s: %+v becomes %+v", name, w, got)
			}
		}
	})
}

func TestWhatIsNoRecordIsNone(t *testing.T) {
	t.Parallel()
	for _, text := range []any{nil, "", "those of a key", "0 0 0 1 0 1", "0 0 0 many 0 1 0 k"} {
		if w := line.ParseWait(text); !reflect.DeepEqual(w, line.Wait{}) {
			t.Errorf("%v is read as %+v", text, w)
		}
	}
}
