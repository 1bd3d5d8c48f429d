package quorum_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/railtoken/railtoken/internal/quorum"
)

// grants feeds a counter of each node; 0 is no answer.
func grants(tops ...int64) *quorum.Acquisition {
	a := quorum.New(len(tops))
	for i, top := range tops {
		if top > 0 {
			a.Granted(i, []int64{top})
		}
	}
	return a
}

func TestCommitNeedsOneRoundWhenCountersAgree(t *testing.T) {
	t.Parallel()
	for _, tops := range [][]int64{{5}, {5, 5, 0}, {0, 5, 5}, {5, 5, 5, 0, 0}} {
		step := grants(tops...).Commit()
		if !step.Done || !slices.Equal(step.Tokens, []int64{5}) || step.Renew != nil {
			t.Errorf("%v: %+v", tops, step)
		}
	}
}

func TestCommitRenewsThoseThatLag(t *testing.T) {
	t.Parallel()
	a := grants(5, 6, 4, 0, 0)
	step := a.Commit()
	if step.Done || step.Lost || !slices.Equal(step.Renew, []int{0, 2}) || step.Tokens[0] != 6 {
		t.Fatalf("%+v", step)
	}
	a.Renewing(0)
	a.Renewing(2)
	if step = a.Commit(); step.Renew != nil || step.Done {
		t.Fatalf("sent twice: %+v", step)
	}
	a.Renewed(0, []int64{6}, true)
	if step = a.Commit(); step.Done {
		t.Fatalf("two of five: %+v", step)
	}
	a.RenewFailed(2)
	if step = a.Commit(); !slices.Equal(step.Renew, []int{2}) {
		t.Fatalf("not tried again: %+v", step)
	}
	a.Granted(3, []int64{6}) // a late answer does as well
	if step = a.Commit(); !step.Done || step.Tokens[0] != 6 {
		t.Fatalf("%+v", step)
	}
	a.Granted(4, []int64{9})
	a.Renewed(0, []int64{6}, false)
	if step = a.Commit(); !step.Done || step.Tokens[0] != 6 {
		t.Errorf("the token has changed: %+v", step)
	}
}

func TestCommitTakesTheLargestOfEachKey(t *testing.T) {
	t.Parallel()
	a := quorum.New(3)
	a.Granted(0, []int64{5, 9})
	a.Granted(1, []int64{6, 8})
	step := a.Commit()
	if step.Done || !slices.Equal(step.Tokens, []int64{6, 9}) || !slices.Equal(step.Renew, []int{0, 1}) {
		t.Fatalf("%+v", step)
	}
	if !slices.Equal(a.Counters(0), []int64{5, 9}) {
		t.Errorf("the counters of a node have changed: %v", a.Counters(0))
	}
	a.Renewed(0, []int64{6, 9}, true)
	a.Renewed(1, []int64{6, 9}, true)
	if step = a.Commit(); !step.Done {
		t.Errorf("%+v", step)
	}
}

func TestCommitIsLostWhenNoQuorumIsLeft(t *testing.T) {
	t.Parallel()
	for answers, want := range map[string]bool{
		"ggg..": false, "ggga.": false, "gggaa": true, "gggff": false, "ggg.a": false,
	} {
		a := quorum.New(len(answers))
		for i, what := range answers {
			tell(a, i, what, int64(9-min(i, 1))) // the first counter is larger, so that it takes another round
		}
		a.Renewed(1, []int64{9}, false)
		if got := a.Commit().Lost; got != want {
			t.Errorf("%s and the second is lost: lost %v", answers, got)
		}
	}
	a := grants(5, 6, 7, 0, 0)
	for i := range 3 {
		a.Renewed(i, []int64{7}, false)
	}
	if step := a.Commit(); !step.Lost {
		t.Errorf("%+v", step)
	}
}

func TestRenewalTellsOfGrantWhoseAnswerWasLost(t *testing.T) {
	t.Parallel()
	a := grants(5, 6, 0)
	a.Failed(2)
	a.Renewed(2, []int64{6}, true)
	if step := a.Commit(); !step.Done || step.Tokens[0] != 6 {
		t.Errorf("%+v", step)
	}
	a = grants(5, 6, 0)
	a.Renewed(2, []int64{6}, false) // it came before the acquire
	a.Granted(2, []int64{6})
	if !a.Commit().Done {
		t.Error("the grant does not count")
	}
}

func TestALostNodeNoLongerCounts(t *testing.T) {
	t.Parallel()
	a := grants(5, 6, 9, 0, 0)
	a.Renewed(2, nil, false)
	if !a.Elsewhere(2) || a.Counters(2) != nil {
		t.Errorf("elsewhere %v, counters %v", a.Elsewhere(2), a.Counters(2))
	}
	a.Renewed(2, []int64{9}, true) // an older renewal, whose answer comes late
	if !a.Elsewhere(2) || a.Counters(2) != nil {
		t.Errorf("after a late answer: elsewhere %v, counters %v", a.Elsewhere(2), a.Counters(2))
	}
	if step := a.Commit(); step.Tokens[0] != 6 || !slices.Equal(step.Renew, []int{0}) {
		t.Errorf("%+v", step)
	}
}

func TestALaterGrantRenewsAgain(t *testing.T) {
	t.Parallel()
	a := grants(5, 6, 0, 0, 0)
	a.Renewing(0)
	a.Renewed(0, []int64{6}, true)
	a.Granted(3, []int64{9})
	if step := a.Commit(); step.Tokens[0] != 9 || !slices.Equal(step.Renew, []int{0, 1}) {
		t.Errorf("%+v", step)
	}
}

func TestARenewalIsAGrantOfASilentNode(t *testing.T) {
	t.Parallel()
	a := grants(5, 6, 0)
	a.Renewed(2, []int64{6}, true)
	if step := a.Commit(); !step.Done || step.Tokens[0] != 6 {
		t.Errorf("%+v", step)
	}
}

// server is a node of the model: what it holds for this owner, and all that it has held.
type server struct {
	counter int64
	ours    bool
	had     []int64
}

func (s *server) hold(counter int64) {
	s.counter = counter
	s.had = append(s.had, counter)
}

func TestCommittedTokenIsHeldByQuorum(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		nodes := rapid.IntRange(1, 7).Draw(t, "nodes")
		a, servers := quorum.New(nodes), make([]server, nodes)
		type renewal struct {
			node  int
			token int64
			ok    bool
		}
		var replies []func()
		var sent []renewal
		for i := range servers {
			servers[i].counter = rapid.Int64Range(0, 3).Draw(t, "counter")
			if servers[i].ours = rapid.IntRange(0, 4).Draw(t, "free") > 0; servers[i].ours {
				servers[i].hold(servers[i].counter + 1)
				top := servers[i].counter
				replies = append(replies, func() { a.Granted(i, []int64{top}) })
			} else {
				replies = append(replies, func() { a.Held(i, "b") })
			}
		}
		var committed []int64
		for range 60 {
			switch rapid.IntRange(0, 5).Draw(t, "event") {
			case 0, 1: // an answer arrives
				if len(replies) == 0 {
					continue
				}
				n := rapid.IntRange(0, len(replies)-1).Draw(t, "which")
				replies[n]()
				if rapid.Bool().Draw(t, "once") {
					replies = slices.Delete(replies, n, n+1)
				}
			case 2: // a renewal arrives, perhaps not for the last time
				if len(sent) == 0 {
					continue
				}
				n := rapid.IntRange(0, len(sent)-1).Draw(t, "which")
				r, s := sent[n], &servers[sent[n].node]
				r.ok = s.ours && s.counter <= r.token
				if r.ok {
					s.hold(r.token)
				}
				replies = append(replies, func() { a.Renewed(r.node, []int64{r.token}, r.ok) })
				if rapid.Bool().Draw(t, "once") {
					sent = slices.Delete(sent, n, n+1)
				}
			case 3:
				a.Failed(rapid.IntRange(0, nodes-1).Draw(t, "node"))
			case 4: // the lock ends somewhere, and another takes it
				s := &servers[rapid.IntRange(0, nodes-1).Draw(t, "node")]
				if rapid.IntRange(0, 9).Draw(t, "ends") == 0 {
					s.ours = false
					s.counter++
				}
			case 5:
				if a.Verdict() != quorum.Won {
					continue
				}
				step := a.Commit()
				switch {
				case committed != nil && (!step.Done || !slices.Equal(step.Tokens, committed)):
					t.Fatalf("%v has become %+v", committed, step)
				case step.Done && step.Lost, step.Done && step.Renew != nil, step.Lost && step.Renew != nil:
					t.Fatalf("%+v", step)
				case step.Done:
					committed = slices.Clone(step.Tokens)
					held := 0
					for _, s := range servers {
						if slices.Contains(s.had, committed[0]) {
							held++
						}
					}
					if held < quorum.Of(nodes) {
						t.Fatalf("token %d, which %d of %d nodes have held", committed[0], held, nodes)
					}
				}
				for _, i := range step.Renew {
					a.Renewing(i)
					sent = append(sent, renewal{node: i, token: step.Tokens[0]})
					if rapid.Bool().Draw(t, "times out") {
						replies = append(replies, func() { a.RenewFailed(i) })
					}
				}
			}
		}
	})
}

func TestARetakeDoesNotChangeTheTokens(t *testing.T) {
	t.Parallel()
	a := quorum.New(3)
	a.Granted(0, []int64{7})
	a.Granted(1, []int64{7})
	a.Held(2, "another")
	if step := a.Commit(); !step.Done {
		t.Fatalf("step %+v, want it done", step)
	}
	a.Renewed(0, []int64{7}, false)
	for i, top := range []int64{9, 7, 12} {
		if i != 1 && !a.Elsewhere(i) {
			t.Errorf("node %d is taken to have the lock", i)
		}
		a.Retaken(i, []int64{top})
		if a.Elsewhere(i) || a.Counters(i)[0] != top {
			t.Errorf("node %d: elsewhere %v, counters %v, want %d", i, a.Elsewhere(i), a.Counters(i), top)
		}
	}
	if step := a.Commit(); !step.Done || step.Tokens[0] != 7 {
		t.Errorf("step %+v, want the token as it was", step)
	}
}
