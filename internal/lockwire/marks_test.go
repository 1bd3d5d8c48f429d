package lockwire_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/railtoken/railtoken/internal/lockwire"
	"github.com/railtoken/railtoken/internal/testing/redistest"
)

func TestTheNewestMarksStay(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t).Client(t)
	keys := []string{"{k}lock", "{k}fence", "{k}subscription"}
	abandon := func(n int) []string {
		owner := fmt.Sprintf("%016d.owner", n)
		if err := client.Eval(t.Context(), lockwire.Abandon, keys, owner, 120, 600_000, 0, 0).Err(); err != nil {
			t.Fatal(err)
		}
		return strings.Fields(client.Get(t.Context(), keys[1]).Val())[1:]
	}
	const most = 256
	for n := range most {
		if marks := abandon(n); len(marks) != n+1 {
			t.Fatalf("%d marks of %d owners", len(marks), n+1)
		}
	}
	marks := abandon(most)
	for i, mark := range marks {
		if id, _, _ := strings.Cut(mark, "@"); len(marks) != most || id != fmt.Sprintf("%016d", i+1) {
			t.Fatalf("mark %d of %d is that of %s", i+1, len(marks), id)
		}
	}
	if again := abandon(most); strings.Join(again, " ") != strings.Join(marks, " ") {
		t.Errorf("an owner that gives up again has changed the marks: %v", again)
	}
}
