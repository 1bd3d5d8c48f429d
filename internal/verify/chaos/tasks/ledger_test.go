package tasks

import (
	"errors"
	"testing"
	"time"

	"github.com/railtoken/railtoken/internal/testing/redistest"
)

func TestALedgerRefusesTheLateAndKnowsTheDone(t *testing.T) {
	t.Parallel()
	for _, checks := range []bool{true, false} {
		l := Ledger{redistest.Start(t).Client(t), checks}
		ctx := t.Context()
		claim := func(r Run, revision int64, known bool) {
			t.Helper()
			if got, done, err := l.Claim(ctx, r); got != revision || done != known || err != nil {
				t.Errorf("run %s: revision %d, done %v, %v; want %d, %v", r.Name, got, done, err, revision, known)
			}
		}
		first, second := Run{"k", "1", "a", 10}, Run{"k", "2", "b", 11}
		claim(first, 0, false)
		claim(second, 0, false) // while the first is there
		if err := l.Commit(ctx, second, 1); err != nil {
			t.Fatal(err)
		}
		if met, err := l.Leave(ctx, second); met != "" || err != nil {
			t.Errorf("nobody has come after run b: %q, %v", met, err)
		}
		if err := l.Commit(ctx, first, 1); errors.Is(err, ErrFenced) != checks {
			t.Errorf("a late commit: %v", err)
		}
		if met, err := l.Leave(ctx, first); met != "gone" || err != nil {
			t.Errorf("run b has come after run a: %q, %v", met, err)
		}
		if _, _, err := l.Claim(ctx, first); errors.Is(err, ErrFenced) != checks {
			t.Errorf("a late claim: %v", err)
		}
		claim(Run{"k", "2", "c", 12}, 1, checks)
		m := Meeting{Run: first, Came: time.Unix(1, 0), Left: time.Unix(2, 0)}
		if err := l.Met(ctx, m); err != nil {
			t.Fatal(err)
		}
		books, err := l.Read(ctx, []Task{{Number: 1, Key: "k"}, {Number: 2, Key: "k"}})
		if err != nil {
			t.Fatal(err)
		}
		effects, refused, repeats := 2, 0, 0
		if checks {
			effects, refused, repeats = 1, 2, 1
		}
		if len(books.Effects["k"]) != effects || books.Revisions["k"] != 1 || books.Refused != refused || books.Repeats != repeats ||
			books.Succeeded != effects+repeats || books.Runs[1] != 2 || books.Runs[2] != 2 || len(books.Meetings) != 1 ||
			!books.Meetings[0].Left.Equal(m.Left) {
			t.Errorf("checks %v: %+v", checks, books)
		}
	}
}
