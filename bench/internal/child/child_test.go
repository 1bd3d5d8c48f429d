package child_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/railtoken/railtoken/bench/internal/child"
)

const argument = "echo-child"

// order is what the child of these tests is asked for.
type order struct{ Words []string }

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == argument {
		if err := child.Serve(os.Stdin, os.Stdout, echo); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// echo says the words. It refuses to start without any, and to stop after more than two.
func echo(_ context.Context, o order, say func(string)) (func() error, error) {
	if len(o.Words) == 0 {
		return nil, errors.New("no words (a test wants this)")
	}
	go func() {
		for _, word := range o.Words {
			say(word)
		}
	}()
	return func() error {
		if len(o.Words) > 2 {
			return errors.New("too many words (a test wants this)")
		}
		return nil
	}, nil
}

func TestAChildSaysItsLinesAndEnds(t *testing.T) {
	t.Parallel()
	c, err := child.Start(argument, order{[]string{"one", "two"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"one", "two"} {
		if got, err := c.Line(); err != nil || got != want {
			t.Errorf("got %q, %v, want %q", got, err, want)
		}
	}
	if err := c.End(); err != nil {
		t.Error(err)
	}
}

func TestAChildThatFailsIsAnError(t *testing.T) {
	t.Parallel()
	if all, err := child.StartAll(2, argument, order{}); err == nil || all != nil {
		t.Errorf("it cannot start: %v, %v", all, err)
	}
	all, err := child.StartAll(1, argument, order{[]string{"a", "b", "c"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := child.EndAll(all); err == nil {
		t.Error("it cannot stop, and nobody tells")
	}
}

func TestAKilledChildSaysNothingMore(t *testing.T) {
	t.Parallel()
	c, err := child.Start(argument, order{[]string{"one"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Line(); err != nil {
		t.Fatal(err)
	}
	c.Kill()
	if line, err := c.Line(); err == nil {
		t.Errorf("got %q", line)
	}
}

func TestARequestThatCannotBeReadIsAnError(t *testing.T) {
	t.Parallel()
	if err := child.Serve(strings.NewReader("{"), os.Stderr, echo); err == nil {
		t.Error("it serves all the same")
	}
}
