package fence

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/railtoken/railtoken/internal/leasing"
)

type lease map[string]int64

var errLost = errors.New("lost")

func (l lease) Keys() (all []string) {
	for key := range l {
		all = append(all, key)
	}
	return all
}

func (l lease) FenceOf(_ context.Context, key string) (int64, error) {
	if l[key] == -1 {
		return 0, errLost
	}
	return l[key], nil
}

func TestFromFindsTheInnermostLeaseOfTheKey(t *testing.T) {
	t.Parallel()
	ctx := leasing.With(leasing.With(t.Context(), lease{"a": 1, "b": 2, "lost": -1}), lease{"b": 3, "old": 0})
	for key, want := range map[string]int64{"a": 1, "b": 3} {
		if tok, err := From(ctx, key); err != nil || tok != (Token{key, want}) {
			t.Errorf("From %s: %+v, %v", key, tok, err)
		}
	}
	for name, test := range map[string]struct {
		ctx  context.Context
		key  string
		want error
	}{
		"no lease":               {t.Context(), "a", ErrNoToken},
		"another key":            {ctx, "c", ErrNoToken},
		"a lease without tokens": {ctx, "old", ErrInvalid},
		"a lost lease":           {ctx, "lost", errLost},
		"a context without":      {leasing.With(ctx, nil), "a", ErrNoToken},
	} {
		if tok, err := From(test.ctx, test.key); !errors.Is(err, test.want) {
			t.Errorf("%s: %+v, %v", name, tok, err)
		}
	}
}

func TestTokensOutOfRangeAreRefused(t *testing.T) {
	t.Parallel()
	for _, tok := range []Token{{}, {"", 1}, {"k", 0}, {"k", -1}, {"k", -1 << 63}, {"k", 1 << 53}, {"k", 1<<63 - 1}} {
		if err := tok.validate(); !errors.Is(err, ErrInvalid) {
			t.Errorf("%+v: %v", tok, err)
		}
	}
	for _, n := range []int64{1, MaxToken} {
		if err := (Token{"k", n}).validate(); err != nil {
			t.Error(err)
		}
	}
}

// Two keys with the same name would share a token: one could fence the other out.
func FuzzStoredName(f *testing.F) {
	long := strings.Repeat("x", maxName)
	for _, seed := range [][2]string{
		{"order:1", "order:2"},
		{"a", "A"},
		{"a ", "a"},
		{"it's", `"it"`},
		{"a%00", "a\x00"},
		{"\xff", "\xfe"},
		{long, long + "x"},
		{long + "xy", long + "xz"},
		{strings.Repeat("\x00", 1<<10), strings.Repeat("\x00", 1<<10+1)},
		{storedName(long + "x"), long + "x"},
	} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		x, y := storedName(a), storedName(b)
		if (x == y) != (a == b) {
			t.Errorf("%q and %q have the names %q and %q", a, b, x, y)
		}
		for _, name := range []string{x, y} {
			if name == "" || len(name) > maxName || strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
				t.Errorf("the name %q", name)
			}
		}
	})
}
