package pipeline

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"
)

// Scripts of which two can be made by one batch script, one by another, and one by none.
var (
	batchOne = NewBatchScript("one", 2)
	batchTwo = NewBatchScript("two", 2)
	kinds    = []*Script{
		NewScript("a").In(batchOne, 'a'), NewScript("A").In(batchOne, 'A'), NewScript("b").In(batchTwo,
			'b'), NewScript("x"),
	}
)

// anyBatch draws a batch of calls on few keys.
func anyBatch(t *rapid.T) []*Call {
	batch := make([]*Call, rapid.IntRange(1, 12).Draw(t, "size"))
	common := rapid.Bool().Draw(t, "one kind")
	for i := range batch {
		script := kinds[0]
		if !common {
			script = rapid.SampledFrom(kinds).Draw(t, "kind")
		}
		keys := []string{rapid.SampledFrom([]string{"k1", "k2", "k3"}).Draw(t, "key"), "other" + fmt.Sprint(i)}
		if rapid.IntRange(0, 3).Draw(t, "more keys") == 0 {
			keys = append(keys, "more")
		}
		batch[i] = NewCall(nil, script, keys, slices.Repeat([]any{i}, rapid.IntRange(1, 4).Draw(t, "arguments"))...)
	}
	return batch
}

func TestBatchesKeepTheOrderOfEachKey(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		batch, least := anyBatch(t), rapid.IntRange(0, 4).Draw(t, "least")
		var order []*Call
		for _, u := range batches(batch, least) {
			order = append(order, u.calls...)
			if len(u.calls) == 1 {
				if !slices.Equal(u.command.args, u.calls[0].command.args) {
					t.Fatalf("a call by itself is sent as %v", u.command.args)
				}
				continue
			}
			if least == 0 || len(u.calls) < least {
				t.Fatalf("%d calls go together, at least %d should", len(u.calls), least)
			}
			for _, c := range u.calls {
				if c.command.batch() == nil || c.command.batch().script != u.command.script {
					t.Fatalf("a batch script makes a call that it cannot make")
				}
			}
		}
		if len(order) != len(batch) {
			t.Fatalf("%d calls of %d", len(order), len(batch))
		}
		for i, first := range batch {
			for _, second := range batch[i+1:] {
				if slices.Index(order, first) > slices.Index(order, second) && meets(first, []*Call{second}) {
					t.Fatalf("%v comes after %v", first.command.args, second.command.args)
				}
			}
			if !slices.Contains(order, first) {
				t.Fatalf("call %d is not made", i)
			}
		}
	})
}

func TestBatchesFormAcrossOtherCalls(t *testing.T) {
	t.Parallel()
	call := func(kind int, key string) *Call { return NewCall(nil, kinds[kind], []string{key, key + "+"}, 1) }
	for name, tt := range map[string]struct {
		batch []*Call
		want  string // the sizes of the batches
	}{
		"all alike":       {[]*Call{call(0, "k"), call(1, "l"), call(0, "k")}, "[3]"},
		"one alone":       {[]*Call{call(0, "k")}, "[1]"},
		"another between": {[]*Call{call(0, "k"), call(3, "x"), call(1, "l")}, "[1 2]"},
		"another on one's key": {
			[]*Call{call(0, "k"), call(1, "l"), call(3, "l"), call(0, "l"), call(0, "m")},
			"[2 1 2]",
		},
		"another in front":  {[]*Call{call(3, "k"), call(0, "k"), call(0, "l")}, "[1 2]"},
		"of another script": {[]*Call{call(0, "k"), call(0, "l"), call(2, "m"), call(2, "n")}, "[2 2]"},
		"with other than 2 keys": {
			[]*Call{call(0, "k"), NewCall(nil, kinds[0], []string{"x"}, 1), call(0, "l")},
			"[1 2]",
		},
	} {
		var sizes []int
		for _, u := range batches(tt.batch, 2) {
			sizes = append(sizes, len(u.calls))
		}
		if got := fmt.Sprint(sizes); got != tt.want {
			t.Errorf("%s: %s, want %s", name, got, tt.want)
		}
	}
}

func TestABatchHoldsEachCallUnchanged(t *testing.T) {
	t.Parallel()
	calls := []*Call{
		NewCall(nil, kinds[0], []string{"k1", "k2"}, "owner", 30, 60),
		NewCall(nil, kinds[1], []string{"l1", "l2"}, "other"),
		NewCall(nil, kinds[0], []string{"k1", "k2"}, "third", 1, 2, 3, 4),
	}
	got := batchOne.command(calls)
	want := []any{
		"evalsha", batchOne.script.sha, 6, "k1", "k2", "l1", "l2", "k1", "k2", "dBf", "owner", 30, 60,
		"other", "third", 1, 2, 3, 4,
	}
	if !slices.Equal(got.args, want) || got.script != batchOne.script {
		t.Errorf("%v, want %v", got.args, want)
	}
}

func TestEachCallHasItsOwnReply(t *testing.T) {
	t.Parallel()
	var _ redis.Error = replyError("")
	broken := errors.New("the connection is broken")
	for name, tt := range map[string]struct {
		reply any
		err   error
		want  string
	}{
		"all well": {[]any{int64(1), "two", []any{int64(3)}}, nil, "1 <nil>, two <nil>, [3] <nil>"},
		"errors of two": {
			[]any{int64(1), nil, nil, []any{int64(2), "OOM no", int64(1), "ERR"}},
			nil,
			"<nil> ERR, <nil> OOM no, <nil> redis: nil",
		},
		"no answer": {
			nil, broken,
			strings.Repeat("<nil> the connection is broken, ", 2) + "<nil> the connection is broken",
		},
		"refused":             {nil, replyError("LOADING"), "<nil> LOADING, <nil> LOADING, <nil> LOADING"},
		"an answer too few":   {[]any{int64(1), int64(2)}, nil, ""},
		"no list":             {"OK", nil, ""},
		"no list of errors":   {[]any{int64(1), nil, nil, "OOM"}, nil, ""},
		"half an error":       {[]any{int64(1), nil, nil, []any{int64(2)}}, nil, ""},
		"an error of none":    {[]any{int64(1), nil, nil, []any{int64(0), "OOM"}}, nil, ""},
		"an error of the 4th": {[]any{int64(1), nil, nil, []any{int64(4), "OOM"}}, nil, ""},
		"no text":             {[]any{int64(1), nil, nil, []any{int64(3), int64(3)}}, nil, ""},
	} {
		calls := []*Call{new(Call), new(Call), new(Call)}
		u := batch{calls: calls}
		u.answer(tt.reply, tt.err)
		var got []string
		for _, c := range calls {
			if tt.want == "" {
				if c.Err == nil || !strings.Contains(c.Err.Error(), "no replies to 3 calls") || u.refused() {
					t.Errorf("%s: %v, %v", name, c.Reply, c.Err)
				}
				continue
			}
			got = append(got, fmt.Sprint(c.Reply, " ", c.Err))
		}
		if got := strings.Join(got, ", "); got != tt.want {
			t.Errorf("%s: %s, want %s", name, got, tt.want)
		}
		if u.refused() != (name == "refused") {
			t.Errorf("%s: refused %v", name, u.refused())
		}
	}
}
