package line_test

import (
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/line"
	"github.com/railtoken/railtoken/internal/testing/linetest"
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
			r.set(task, linetest.Record(w)...)
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

// A server of an earlier version knows the field railtoken:waiters alone: it says which waiters such a server has put a task among
// since, or that the wait is over.
func TestAWaitOfAnEarlierVersionCounts(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		keys []string // that it has waited for
		set  string   // the key for which an earlier version has parked it since, and whose wake reaches it; "" when it has failed there
	}{"parked for another key": {[]string{"a"}, "b"}, "failed": {[]string{"a", "b"}, ""}} {
		t.Run(name, func(t *testing.T) {
			onEach(t, func(t *testing.T, r *rig) {
				task := r.Delayed("t")
				r.parkFor(task, tt.keys...)
				pipe := r.Client.Pipeline()
				if tt.set == "" {
					pipe.HDel(t.Context(), hash(task), "railtoken:waiters")
				} else {
					pipe.HSet(t.Context(), hash(task), "railtoken:waiters", r.registry(tt.set))
					pipe.ZAdd(t.Context(), r.registry(tt.set), redis.Z{Score: 1, Member: entry(task)})
				}
				if _, err := pipe.Exec(t.Context()); err != nil {
					t.Fatal(err)
				}
				var woken strings.Builder
				for _, key := range []string{"b", "a"} {
					if w := r.Wake(key); len(w.Tasks) > 0 {
						woken.WriteString(key)
					}
				}
				if woken.String() != tt.set {
					t.Errorf("the task was woken for %q, want %q", woken.String(), tt.set)
				}
			})
		})
	}
}

func TestWhatIsNoRecordIsNone(t *testing.T) {
	t.Parallel()
	for _, text := range []any{nil, "", "those of a key", "0 0 0 1 0 1", "0 0 0 many 0 1 0 k"} {
		if w := line.ParseWait(text); !reflect.DeepEqual(w, line.Wait{}) {
			t.Errorf("%v is read as %+v", text, w)
		}
	}
}
