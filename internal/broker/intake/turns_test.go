package intake

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// world has places with tasks for a server with some slots, and carries out what turns decide. Its clock goes by.
type world struct {
	*turns

	now     time.Time
	pending []map[queueSet]int // tasks by queue, of each place
	runs    []int              // tasks that run, of each place
	done    []int
	ended   []int // when its last runs ended
	free    int
	slots   int
	calls   int
}

func newWorld(places, slots int, strict bool) *world {
	w := &world{turns: newTurns(places, slots, strict), now: time.Unix(1e9, 0), free: slots, slots: slots}
	for range places {
		w.pending = append(w.pending, map[queueSet]int{})
	}
	w.runs, w.done, w.ended = make([]int, places), make([]int, places), make([]int, places)
	return w
}

// first returns the first place that the next Fetch asks.
func (t *turns) first(now time.Time) (i int, a asked, ok bool) {
	for _, p := range t.picks(now, 1) {
		return p.place, p.asked, true
	}
	return 0, a, false
}

// add adds n tasks to a queue of a place, and has the server hear of them.
func (w *world) add(i, queue, n int) {
	w.pending[i][setOf(queue)] += n
	w.hear(i, setOf(queue))
}

// serve has a place answer a call for n tasks at most: it takes from the higher queues first.
func (w *world) serve(i int, a asked, n int) (came int) {
	w.calls++
	for queue := range 64 {
		for set := setOf(queue); a.queues&set != 0 && came < n && w.pending[i][set] > 0; came++ {
			w.pending[i][set]--
		}
	}
	if n > 0 {
		w.answered(i, a, came == n, came == n)
	}
	w.runs[i] += came
	w.free -= came
	return came
}

// step has the server fetch while it has slots, and ends the runs of one place after a millisecond.
func (w *world) step(t interface{ Fatalf(string, ...any) }, ends int) {
	for w.free > 0 {
		picks := w.picks(w.now, w.free)
		if len(picks) == 0 {
			break
		}
		for _, p := range picks {
			n := w.free
			if p.most >= 0 {
				n = min(n, p.most)
			}
			w.serve(p.place, p.asked, n)
			w.leave(p.place)
		}
	}
	if w.free > 0 && w.any(w.now) {
		t.Fatalf("%d slots are free while places may have tasks: %+v", w.free, w.all)
	}
	w.now = w.now.Add(time.Millisecond)
	if w.runs[ends] == 0 {
		return
	}
	own := w.runs[ends]
	w.runs[ends], w.free = 0, w.free+own
	w.done[ends] += own
	w.ended[ends] = w.calls
	a, most := w.join(ends, w.now, own)
	n := w.free
	switch {
	case a.woken: // none waits for a key
		return
	case most >= 0:
		n = min(n, most)
	}
	w.serve(ends, a, n)
}

// longest returns the place whose runs are to end next: the one with runs whose last ones ended the longest ago.
func (w *world) longest() (i int) {
	for j := range w.runs {
		if w.runs[j] > 0 && (w.runs[i] == 0 || w.ended[j] < w.ended[i]) {
			i = j
		}
	}
	return i
}

func TestEachPlaceHasItsTurn(t *testing.T) {
	t.Parallel()
	for _, slots := range []int{1, 2, 32, 100} {
		t.Run(fmt.Sprint(slots), func(t *testing.T) {
			t.Parallel()
			const places = 64
			w := newWorld(places, slots, false)
			for i := range places {
				w.add(i, i%3, 1_000_000)
			}
			rounds := 3 * places / min(w.width, slots) * int(turnLength/time.Millisecond)
			for range 2 * rounds {
				w.step(t, w.longest())
			}
			least, most := slices.Min(w.done), slices.Max(w.done)
			if least == 0 || most > 4*least {
				t.Errorf("in six rounds one place has done %d tasks, another %d", least, most)
			}
			total := 0
			for _, n := range w.done {
				total += n
			}
			if slots >= 32 && float64(total)/float64(w.calls) < float64(slots)/float64(w.width)/2 {
				t.Errorf("%d calls for %d tasks on %d slots", w.calls, total, slots)
			}
		})
	}
}

func TestASingleTaskIsNotStarved(t *testing.T) {
	t.Parallel()
	w := newWorld(64, 2, false)
	for i := range 63 {
		w.add(i, 0, 1_000_000)
	}
	for range 10 {
		w.step(t, w.longest())
	}
	w.add(63, 0, 1)
	for n := 0; w.done[63] == 0; n++ {
		if n > 64*int(turnLength/time.Millisecond) {
			t.Fatal("the single task has not run in a round of all turns")
		}
		w.step(t, w.longest())
	}
}

// While a place with a lower queue has all slots, a task comes into a higher queue elsewhere.
func TestStrictPrioritiesHoldOverPlaces(t *testing.T) {
	t.Parallel()
	w := newWorld(16, 8, true)
	for i := range 16 {
		w.add(i, 1, 1000)
	}
	w.step(t, 0)
	w.add(5, 0, 20)
	for n := 0; w.pending[5][setOf(0)] > 0; n++ {
		if n > 100 {
			t.Fatal("the higher queue is not emptied")
		}
		lower := w.pending[0][setOf(1)]
		for i := range w.pending {
			lower = min(lower, w.pending[i][setOf(1)])
		}
		w.step(t, w.longest())
		after := w.pending[0][setOf(1)]
		for i := range w.pending {
			after = min(after, w.pending[i][setOf(1)])
		}
		if w.pending[5][setOf(0)] > 0 && after < lower {
			t.Fatal("a lower queue was asked while a higher one has tasks")
		}
	}
}

func TestAPlaceThatFailsRests(t *testing.T) {
	t.Parallel()
	w := newTurns(2, 1, false)
	now := time.Unix(1e9, 0)
	w.hear(0, 1)
	for rest := restFirst; rest <= 4*restMost; rest *= 2 {
		i, _, ok := w.first(now)
		if !ok || i != 0 {
			t.Fatalf("after a rest it picks %d, %v", i, ok)
		}
		w.failed(0, now)
		w.leave(0)
		if now = now.Add(min(rest, restMost)); w.any(now.Add(-1)) {
			t.Fatalf("it rests for less than %v", min(rest, restMost))
		}
	}
	w.hear(1, 1)
	if i, _, ok := w.first(now.Add(-1)); !ok || i != 1 {
		t.Errorf("while it rests, %d is picked, %v, want the other", i, ok)
	}
}

func TestWhatIsHeardDuringACallIsNotForgotten(t *testing.T) {
	t.Parallel()
	w := newTurns(1, 8, false)
	now := time.Unix(1e9, 0)
	w.hear(0, 1)
	_, a, _ := w.first(now)
	w.hear(0, 1)
	w.answered(0, a, false, false)
	w.leave(0)
	if !w.any(now) {
		t.Error("a task that came while the place answered is forgotten")
	}
	_, a, _ = w.first(now)
	w.answered(0, a, false, false)
	w.leave(0)
	if w.any(now) {
		t.Error("a place is asked again that has told that it has no more")
	}
}

// Whatever happens, no slot is free while a place may have tasks, and each task runs in the end.
func TestTurnsLeaveNothing(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		places := rapid.IntRange(1, 20).Draw(t, "places")
		w := newWorld(places, rapid.IntRange(1, 40).Draw(t, "slots"), rapid.Bool().Draw(t, "strict"))
		place := rapid.IntRange(0, places-1)
		t.Repeat(map[string]func(*rapid.T){
			"tasks": func(t *rapid.T) {
				w.add(place.Draw(t, "place"), rapid.IntRange(0, 3).Draw(t, "queue"), rapid.IntRange(1, 50).Draw(t, "tasks"))
			},
			"step": func(t *rapid.T) { w.step(t, place.Draw(t, "ends")) },
		})
		for n := 0; ; n++ {
			left := 0
			for i := range w.pending {
				left += w.runs[i]
				for _, tasks := range w.pending[i] {
					left += tasks
				}
			}
			if left == 0 {
				break
			}
			if n > 100_000 {
				t.Fatalf("%d tasks are left: %+v", left, w.all)
			}
			w.step(t, w.longest())
		}
	})
}

func TestNeighboursAreFarFromEachOther(t *testing.T) {
	t.Parallel()
	all := reversed(16)
	for i := 1; i < len(all); i++ {
		if d := all[i] - all[i-1]; max(d, -d) < 4 {
			t.Errorf("%d follows %d", all[i], all[i-1])
		}
	}
	slices.Sort(all)
	for i, n := range all {
		if i != n {
			t.Fatalf("the lanes are %v", all)
		}
	}
	if len(reversed(0)) != 0 {
		t.Error("no lanes have an order")
	}
}

// The master of three places does not answer: one of them at a time is asked, for one task, and with the first answer all are back.
func TestOneFetchProbesAMaster(t *testing.T) {
	t.Parallel()
	w := newTurns(4, 8, false)
	now := time.Unix(1e9, 0)
	for i := range 4 {
		w.hear(i, 1)
	}
	i, _, _ := w.first(now)
	w.away([]int{0, 1, 2}, now)
	w.ask(i)
	if i, a, ok := w.first(now.Add(restMost)); !ok || i != 3 || a.probe {
		t.Fatalf("beside a probe %d is picked, %+v, %v", i, a, ok)
	}
	w.leave(i)
	if now = now.Add(restFirst); w.any(now.Add(-1)) {
		t.Fatal("the places do not rest")
	}
	i, a, ok := w.first(now)
	if !ok || i == 3 || !a.probe {
		t.Fatalf("after the rest %d is picked, %+v, %v", i, a, ok)
	}
	if _, most := w.join((i+1)%3, now, 5); most != 0 {
		t.Errorf("acknowledgements take %d tasks from a master that may be away", most)
	}
	if _, _, ok := w.first(now); ok {
		t.Error("a second one is asked")
	}
	w.answered(i, a, true, true)
	w.leave(i)
	for range 3 {
		if _, a, ok := w.first(now); !ok || a.probe {
			t.Fatalf("after the answer: %+v, %v", a, ok)
		}
	}
}

// An acknowledgement wakes a task in a place of which nothing was known, and others behind it.
func TestAcknowledgementsFindTasks(t *testing.T) {
	t.Parallel()
	w := newTurns(2, 8, false)
	now := time.Unix(1e9, 0)
	a, most := w.join(0, now, 2)
	if most != 2 {
		t.Fatalf("two acknowledgements ask for %d tasks, want those for their slots", most)
	}
	w.answered(0, a, true, true)
	if i, _, ok := w.first(now); !ok || i != 0 {
		t.Errorf("then %d is picked, %v, want the place that has brought as many as it was asked for", i, ok)
	}
	w.leave(0)
	a, _ = w.join(0, now, 2)
	w.answered(0, a, false, false)
	if w.any(now) {
		t.Error("the place is asked although it had no more")
	}
}

// Who waits for a key waits for no turn of its place when that is released, but with strict priorities for higher queues elsewhere.
func TestAcknowledgementsTakeWhatTheyWakeOutOfTurn(t *testing.T) {
	t.Parallel()
	for strict, queues := range map[bool]queueSet{false: ^queueSet(0), true: setOf(0)} {
		w := newTurns(2, 8, strict)
		w.hear(0, setOf(0)|setOf(1))
		w.hear(1, setOf(0))
		if a, most := w.join(0, time.Unix(1e9, 0), 3); !a.woken || a.queues != queues || most != 3 {
			t.Errorf("strict %v: %+v, %d, want the tasks that are woken in the queues %b for three slots", strict, a, most, queues)
		}
	}
}

// A place whose tasks wait for keys gives up its turn to one whose tasks may run.
func TestAPlaceThatHasTooFewGivesUpItsTurn(t *testing.T) {
	t.Parallel()
	for full, next := range map[bool]int{true: 0, false: 2} {
		w := newTurns(3, 8, false)
		now := time.Unix(1e9, 0)
		for i := range 3 {
			w.hear(i, setOf(0))
		}
		for range w.width {
			i, a, _ := w.first(now)
			w.answered(i, a, full, true)
			w.leave(i)
		}
		if i, _, ok := w.first(now.Add(time.Millisecond)); !ok || i != next {
			t.Errorf("full %v: then %d is picked, %v, want %d", full, i, ok, next)
		}
	}
}

// A place may have tasks only in its own queues, whatever is heard of it.
func TestAPlaceHasNoOtherQueues(t *testing.T) {
	t.Parallel()
	turns := newTurning([]*place{{positions: []int{0, 1, 2}}, {positions: []int{2}}}, 4, true).turns
	for i, has := range []queueSet{setOf(0) | setOf(1) | setOf(2), setOf(2)} {
		turns.hear(i, ^queueSet(0))
		if turns.all[i].may != has {
			t.Errorf("place %d may have tasks in %b", i, turns.all[i].may)
		}
		turns.answered(i, asked{queues: ^queueSet(0), heard: turns.all[i].heard}, false, false)
		turns.answered(i, asked{queues: ^queueSet(0)}, true, true)
		if turns.all[i].may != has {
			t.Errorf("after an answer place %d may have tasks in %b", i, turns.all[i].may)
		}
	}
}
