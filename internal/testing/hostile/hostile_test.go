package hostile_test

import (
	"reflect"
	"testing"

	"github.com/railtoken/railtoken/internal/testing/hostile"
)

func TestOneValueIsSpoilt(t *testing.T) {
	t.Parallel()
	reply := func() any { return []any{int64(1), []any{"a", nil}, "b"} }
	differ := map[int]bool{}
	for at := range 12 {
		for how := range 32 {
			for what := range 32 {
				got := hostile.Spoil(reply(), at, byte(how), byte(what))
				if !reflect.DeepEqual(got, reply()) {
					differ[at] = true
				}
			}
		}
		if !differ[at] {
			t.Errorf("place %d is never spoilt", at)
		}
	}
	list, _ := hostile.Spoil(reply(), 5, 2, 0).([]any)
	if want := []any{int64(1), []any{"a", nil}, int64(0)}; !reflect.DeepEqual(list, want) {
		t.Errorf("the last value: %#v, want %#v", list, want)
	}
}
