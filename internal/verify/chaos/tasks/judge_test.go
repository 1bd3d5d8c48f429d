package tasks

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/railtoken/railtoken/middleware"
)

// start is when the facts of these tests begin.
var start = time.Unix(1_700_000_000, 0)

func second(n int) time.Time { return start.Add(time.Duration(n) * time.Second) }

// at is when a task was sent.
func at(n int) Window { return Window{second(n), second(n).Add(time.Millisecond)} }

// kind returns the first kind with an order.
func kind(o middleware.Order) int {
	for i, k := range Kinds {
		if k.Order == o {
			return i
		}
	}
	panic("no kind has that order")
}

// sound are the facts of four tasks of a key that were sent in four seconds and had their effects in order. From second 10 to 14 there was
// a failover. Clocks stepped in second 30.
func sound(o middleware.Order) Facts {
	f := Facts{
		Sent:      map[int]Sent{},
		Books:     Books{Effects: map[string][]Effect{}, Revisions: map[string]int{"k": 4}, Runs: map[int]int{}, Succeeded: 4},
		Failovers: []Window{{second(10), second(14)}}, Steps: []Window{{second(30), second(31)}}, Succeeded: 4,
	}
	for n := range 4 {
		f.Tasks = append(f.Tasks, Task{Number: n, Key: "k", Kind: kind(o)})
		f.Sent[n] = Sent{Window: at(n), Tries: 1}
		f.Books.Effects["k"] = append(f.Books.Effects["k"], Effect{n, int64(100 + n)})
		f.Books.Runs[n] = 1
	}
	return f
}

func TestEachJudgeTellsDamageFromWhatIsExplained(t *testing.T) {
	t.Parallel()
	swap := func(f *Facts) { // task 1 comes after task 2
		e := f.Books.Effects["k"]
		e[1].Task, e[2].Task = e[2].Task, e[1].Task
	}
	drop := func(f *Facts) { // the last effect
		f.Books.Effects["k"], f.Books.Revisions["k"] = f.Books.Effects["k"][:3], 3
	}
	resent := func(n int, sent Window) func(*Facts) {
		return func(f *Facts) {
			f.Gone = []Gone{{n, sent}}
			f.Sent[n] = Sent{Window: at(50), Tries: 2}
		}
	}
	sent := func(n int, s Sent) func(*Facts) { return func(f *Facts) { f.Sent[n] = s } }
	meet := func(left time.Time) func(*Facts) {
		return func(f *Facts) { f.Books.Meetings = []Meeting{{Came: second(1), Left: left}} }
	}
	fifo, strict := middleware.FIFO, middleware.StrictFIFO
	for name, tt := range map[string]struct {
		order middleware.Order
		do    []func(*Facts)
		want  Row // of what it explains, and of the damage
	}{
		"all is well":              {strict, nil, Row{}},
		"a task without an effect": {strict, []func(*Facts){drop}, Row{Lost: 1}},
		"gone without a failover":  {strict, []func(*Facts){resent(1, at(5))}, Row{Gone: 1, Lost: 1}},
		"gone with a failover":     {strict, []func(*Facts){resent(1, at(11))}, Row{Gone: 1}},
		"gone, answered late":      {strict, []func(*Facts){resent(1, Window{second(11), second(20)})}, Row{Gone: 1}},
		"gone after a failover":    {strict, []func(*Facts){resent(1, at(15))}, Row{Gone: 1, Lost: 1}},
		"an effect that comes twice": {strict, []func(*Facts){func(f *Facts) {
			f.Books.Effects["k"], f.Books.Revisions["k"] = append(f.Books.Effects["k"], Effect{3, 104}), 5
		}}, Row{Twice: 1}},
		"a lost update":                        {strict, []func(*Facts){func(f *Facts) { f.Books.Revisions["k"] = 3 }}, Row{LostUpdates: 1}},
		"a token of two tasks":                 {strict, []func(*Facts){func(f *Facts) { f.Books.Effects["k"][2].Token = 101 }}, Row{Tokens: 1}},
		"a token below an earlier one":         {strict, []func(*Facts){func(f *Facts) { f.Books.Effects["k"][2].Token = 99 }}, Row{Tokens: 1}},
		"two holders":                          {strict, []func(*Facts){meet(second(5))}, Row{Met: 1}},
		"two holders, long after a failover":   {strict, []func(*Facts){meet(second(20))}, Row{Met: 1}},
		"two holders with a failover":          {strict, []func(*Facts){meet(second(16))}, Row{Explained: 1}},
		"two holders while a clock stepped":    {strict, []func(*Facts){meet(second(32))}, Row{Explained: 1}},
		"out of order":                         {strict, []func(*Facts){swap}, Row{Disordered: 1}},
		"out of order, in FIFO":                {fifo, []func(*Facts){swap}, Row{Disordered: 1}},
		"out of order, in none":                {middleware.BestEffort, []func(*Facts){swap}, Row{}},
		"out of order, after a failed run":     {fifo, []func(*Facts){swap, func(f *Facts) { f.Books.Runs[1] = 2 }}, Row{LateAllowed: 1}},
		"the same in StrictFIFO":               {strict, []func(*Facts){swap, func(f *Facts) { f.Books.Runs[1] = 2 }}, Row{Disordered: 1}},
		"out of order, sent before a failover": {strict, []func(*Facts){swap, sent(1, Sent{Window: at(10), Tries: 1})}, Row{LateAllowed: 1}},
		"out of order, without a position":     {strict, []func(*Facts){swap, sent(1, Sent{Window: at(1), Tries: 1, Outside: true})}, Row{LateAllowed: 1}},
		"a success too many":                   {strict, []func(*Facts){func(f *Facts) { f.Succeeded = 5 }}, Row{Miscounted: 1}},
		"a success without a run":              {strict, []func(*Facts){func(f *Facts) { f.Books.Succeeded = 3 }}, Row{Miscounted: 1}},
		"a success too few":                    {strict, []func(*Facts){func(f *Facts) { f.Succeeded = 3 }}, Row{Miscounted: 1}},
		"one that a failover has lost":         {strict, []func(*Facts){func(f *Facts) { f.Succeeded = 3 }, sent(3, Sent{Window: at(11), Tries: 1})}, Row{}},
		"somebody still waits":                 {strict, []func(*Facts){func(f *Facts) { f.Left = 1 }}, Row{Left: 1}},
	} {
		f := sound(tt.order)
		for _, do := range tt.do {
			do(&f)
		}
		got := Judge(f)
		got = Row{
			Gone: got.Gone, LateAllowed: got.LateAllowed, Explained: got.Explained, Lost: got.Lost, Twice: got.Twice, LostUpdates: got.LostUpdates,
			Tokens: got.Tokens, Met: got.Met, Disordered: got.Disordered, Miscounted: got.Miscounted, Left: got.Left,
		}
		if got.String() != tt.want.String() {
			t.Errorf("%s:\n got %v\nwant %v", name, got, tt.want)
		}
	}
}

func TestAFailoverAwaitsWhatSpoilsIt(t *testing.T) {
	t.Parallel()
	var h Health
	for i, tt := range []struct {
		fault Fault
		now   int // s
		want  bool
	}{
		{FullMaster, 0, true},
		{Switch, 0, false},
		{PauseMaster, 0, false},
		{Switch, 1, true},
		{KillMaster, 2, false},
		{Step, 2, false},
		{PauseWorker, 2, true},
		{"", 3, true}, // it has ended
		{KillMaster, 4, false},
		{Step, 4, true},
		{KillMaster, 8, false},
		{KillMaster, 13, true},
	} {
		now := time.Duration(tt.now) * time.Second
		if tt.fault == "" {
			h.Replaced()
			continue
		}
		if got := h.Admit(Event{Fault: tt.fault, Lasts: time.Second}, now); got != tt.want {
			t.Errorf("event %d, %v: %v, want %v", i, tt.fault, got, tt.want)
		}
	}
}

func TestAPlanBeginsWithEachFaultOnce(t *testing.T) {
	t.Parallel()
	seen := map[Fault]bool{}
	for i, e := range Plan(rand.New(rand.NewPCG(1, 0)), Workers+1, time.Minute, time.Second) {
		if e.Must != (i < len(Faults)) {
			t.Errorf("event %d must happen: %v", i, e.Must)
		}
		if e.Must {
			seen[e.Fault] = true
		}
	}
	if len(seen) != len(Faults) {
		t.Errorf("%d of %d faults must happen", len(seen), len(Faults))
	}
}
