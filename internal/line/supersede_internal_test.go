package line

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/railtoken/railtoken/internal/holdings"
)

// heeds is a run that notes what it is told.
type heeds struct{ told []holdings.Supersession }

func (h *heeds) Supersede(s holdings.Supersession, _ holdings.Lease) { h.told = append(h.told, s) }

func TestTheHoldersOfAKeyAreToldByWhomAndHowLongTheyMayTake(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e, client := newVirtual(t, Options{})
		e.followSupersessions()
		synctest.Wait()
		active(t, e, client, "successor")
		var holder, another heeds
		e.held.Add(&holdings.Holding{Queue: "q", ID: "holder", Keys: []string{"k"}, Holder: &holder})
		e.held.Add(&holdings.Holding{Queue: "q", ID: "another", Keys: []string{"l"}, Holder: &another})
		s := holdings.Supersession{Keys: []string{"k", "\xff"}, Group: "g\xff", Queue: "q", ID: "successor", Grace: 1500 * time.Millisecond}
		if err := e.TellHolders(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if len(another.told) > 0 {
			t.Error("the holder of another key is told")
		}
		if len(holder.told) != 1 {
			t.Fatalf("it is told %d times", len(holder.told))
		}
		if got := holder.told[0]; !slices.Equal(got.Keys, s.Keys) || got.Group != s.Group || got.Queue != s.Queue || got.ID != s.ID || got.Grace != s.Grace {
			t.Errorf("it is told of %+v, want %+v", got, s)
		}
	})
}
