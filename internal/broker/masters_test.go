package broker

import (
	"context"
	"reflect"
	"testing"
	"testing/synctest"
	"time"
)

func TestKeysAreGroupedByTheirMasters(t *testing.T) {
	t.Parallel()
	of := []string{"b", "a", "b", "c", "a", "b"}
	want := []group{{"b", []int{0, 2, 5}}, {"a", []int{1, 4}}, {"c", []int{3}}}
	if got := grouped(len(of), func(i int) string { return of[i] }); !reflect.DeepEqual(got, want) {
		t.Errorf("the groups are %v, want %v", got, want)
	}
	if got := grouped(0, nil); len(got) != 0 {
		t.Errorf("no keys have the groups %v", got)
	}
}

func TestNothingPilesUpAtAMasterThatHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newMasters(nil)
		hangs := func(ctx context.Context) { <-ctx.Done() }
		stuck, begun := m.begin(errand{laneLooking, "a"}, hangs)
		if !begun {
			t.Fatal("the first call does not begin")
		}
		for range 100 {
			if _, begun := m.begin(errand{laneLooking, "a"}, hangs); begun {
				t.Fatal("a second call begins while the first is under way")
			}
			for _, other := range []errand{{laneLooking, "b"}, {"forward", "a"}} {
				over, begun := m.begin(other, func(context.Context) { time.Sleep(time.Millisecond) })
				if !begun || !isOver(t.Context(), over) {
					t.Fatalf("%v is held up", other)
				}
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), awayAfter)
		defer cancel()
		if began := time.Now(); isOver(ctx, stuck) || time.Since(began) != awayAfter {
			t.Errorf("a call that hangs is waited for for %v", time.Since(began))
		}
		m.close()
		if !isOver(ctx, stuck) {
			t.Error("close leaves a call")
		}
		if _, begun := m.begin(errand{laneLooking, "b"}, hangs); begun {
			t.Error("a call begins after close")
		}
	})
}
