package similar

import (
	"slices"
	"strings"
	"testing"
)

func TestFewAreThoseThatWereMeant(t *testing.T) {
	t.Parallel()
	names := []string{"order:1042", "order:1043", "orders:1042", "seller:7", "ORDER:1042", "", strings.Repeat("order:1042", 50)}
	for to, want := range map[string][]string{
		"order:1042": {"ORDER:1042", "order:1043", "orders:1042"}, "ordr:1042": {"order:1042", "ORDER:1042", "order:1043"},
		"1042": {"order:1042", "orders:1042", "ORDER:1042"}, "tenant:99": {}, "": {},
	} {
		got := Few(to, names, 3)
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", to, got, want)
		}
	}
	if got := Few("ordr:1042", names, 1); len(got) != 1 {
		t.Errorf("%q", got)
	}
}

func TestNearestDiffersLeast(t *testing.T) {
	t.Parallel()
	if got := Nearest("RAILTOKEN_QUEUE", []string{"RAILTOKEN_DB", "RAILTOKEN_QUEUES"}); got != "RAILTOKEN_QUEUES" {
		t.Error(got)
	}
}

func TestDistanceOfNames(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"a", "", 1}, {"", "ab", 2}, {"kitten", "sitting", 3}, {"ADDR", "ADR", 1}, {"abc", "abc", 0}} {
		if got := Distance(tc.a, tc.b); got != tc.want {
			t.Errorf("%q and %q are %d apart; want %d", tc.a, tc.b, got, tc.want)
		}
	}
}
