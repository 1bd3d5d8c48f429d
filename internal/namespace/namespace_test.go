package namespace_test

import (
	"strings"
	"testing"

	"github.com/railtoken/railtoken/internal/namespace"
)

func TestUnfitNamesAreRefused(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"shop-a": "", "A.b_9": "", strings.Repeat("x", 64): "",
		"": "name one", " ": `' '`, "shop a": `' '`, "a\n": `'\n'`, "{a}": `'{'`, "a}": `'}'`, "a:b": `':'`, "a*": `'*'`, "ä": `'ä'`, "a\x00": `'\x00'`,
		strings.Repeat("x", 65): "shorten it", "asynq": "choose another", "Railtoken": "choose another",
	} {
		in, err := namespace.New(name, true)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q gives %v, want %q", name, err, want)
		}
		if err != nil && !in.IsZero() {
			t.Errorf("%q gives %+v beside an error", name, in)
		}
	}
	if in, err := namespace.New("", false); err != nil || !in.IsZero() || in.In("asynq:queues") != "asynq:queues" {
		t.Errorf("none is %+v, %v", in, err)
	}
}

func TestAsynqsNamesHaveThePrefixOnRequest(t *testing.T) {
	t.Parallel()
	for _, tasks := range []bool{false, true} {
		in, err := namespace.New("shop-a", tasks)
		if err != nil {
			t.Fatal(err)
		}
		if got := in.In("railtoken:workers"); got != "shop-a:railtoken:workers" {
			t.Errorf("tasks %v: ours is %q", tasks, got)
		}
		want := map[bool]string{false: "asynq:{q}:pending", true: "shop-a:asynq:{q}:pending"}[tasks]
		if got := in.In("asynq:{q}:pending"); got != want {
			t.Errorf("tasks %v: asynq's is %q, want %q", tasks, got, want)
		}
	}
}
