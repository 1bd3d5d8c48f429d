package quorum_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/railtoken/railtoken/internal/quorum"
)

// count polls nodes that answer in the order of the letters: y yes, n no, f failed.
func count(nodes int, answers string) *quorum.Poll {
	p := quorum.NewPoll(nodes)
	for _, what := range answers {
		switch what {
		case 'y':
			p.Yes()
		case 'n':
			p.No()
		case 'f':
			p.Failed()
		}
	}
	return &p
}

func TestPollComesToItsOutcomeEarly(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		nodes   int
		answers string
		want    quorum.Outcome
	}{
		{1, "", quorum.Open},
		{1, "y", quorum.Done},
		{1, "n", quorum.Lost},
		{1, "f", quorum.Unknown},
		{3, "y", quorum.Open},
		{3, "yy", quorum.Done},
		{3, "nn", quorum.Lost},
		{3, "yn", quorum.Open},
		{3, "yf", quorum.Open},
		{3, "nf", quorum.Open}, // the last node can make it a loss
		{3, "ff", quorum.Unknown},
		{3, "ynf", quorum.Unknown},
		{5, "yynn", quorum.Open},
		{5, "yyff", quorum.Open},
		{5, "nnff", quorum.Open},
		{5, "ynff", quorum.Unknown},
		{5, "fff", quorum.Unknown},
		{5, "nnn", quorum.Lost},
		{4, "yy", quorum.Open},
		{4, "nn", quorum.Lost}, // half is enough to make a quorum impossible
	} {
		if got := count(tt.nodes, tt.answers).Outcome(); got != tt.want {
			t.Errorf("%s of %d: %v, want %v", tt.answers, tt.nodes, got, tt.want)
		}
	}
}

func TestOutcomeIsFinalAndThatOfAllAnswers(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		answers := rapid.StringOfN(rapid.RuneFrom([]rune("yynf")), 1, 9, -1).Draw(t, "answers")
		all, final := count(len(answers), answers).Outcome(), quorum.Open
		for i := range answers {
			p := count(len(answers), answers[:i+1])
			if p.Answered() != i+1 {
				t.Fatalf("%d answers after %d", p.Answered(), i+1)
			}
			got := p.Outcome()
			if final != quorum.Open && got != final || got != quorum.Open && got != all {
				t.Fatalf("%s: %v, before %v, in the end %v", answers[:i+1], got, final, all)
			}
			final = got
		}
		if all == quorum.Open {
			t.Fatal("open when all have answered")
		}
	})
}

func TestValidityLeavesRoomForDrift(t *testing.T) {
	t.Parallel()
	for ttl, want := range map[time.Duration]time.Duration{
		time.Second: 988 * time.Millisecond, 30 * time.Second: 29_698 * time.Millisecond,
		time.Millisecond: -1010 * time.Microsecond, 54 * time.Second: 53_458 * time.Millisecond,
	} {
		if got := quorum.Validity(ttl); got != want {
			t.Errorf("%v: %v, want %v", ttl, got, want)
		}
	}
}
