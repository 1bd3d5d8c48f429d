package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/railtoken/railtoken/internal/testing/leaktest"
	"github.com/railtoken/railtoken/internal/testing/redistest"
)

func TestMain(m *testing.M) { leaktest.Verify(m) }

// Not parallel: the command reads the environment.
func TestCommandAllocatesAndListsWhatFailed(t *testing.T) {
	for name, addr := range map[string]string{"embedded": "", "redis-server": redistest.Start(t).Addr()} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("RAILTOKEN_REDIS_ADDR", addr)
			var out, errOut bytes.Buffer
			if status := command(t.Context(), []string{"-n", "200", "-work", "1ms"}, &out, &errOut); status != exitOK {
				t.Fatalf("status %d\n%s%s", status, &out, &errOut)
			}
			for _, want := range []string{
				"200 orders (generated) are allocated in 5 runs of 40", "orders could not be allocated", "REFERENCE",
				"out of stock: S0",
				"409 Conflict, Retry-After:", "4 are allocated", "order:A10000 is held by Ms Miller's audit",
				"OK: every order",
			} {
				if !strings.Contains(out.String(), want) {
					t.Errorf("the output lacks %q:\n%s", want, &out)
				}
			}
		})
	}
}

func TestCommandReadsOrdersFromAFile(t *testing.T) {
	t.Setenv("RAILTOKEN_REDIS_ADDR", "")
	file := filepath.Join(t.TempDir(), "orders.csv")
	for text, want := range map[string]string{
		"order_id,items,seller_ids\nA1,3,S1 S2\nA2,1,S1\n": "2 orders (from orders.csv)",
		"order_id,items\nA1,3\n":                           "no column seller_ids",
		"order_id,items,seller_ids\nA1,1,S1 S2\n":          "line 2",
		"order_id,items,seller_ids\n":                      "no order",
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		command(t.Context(), []string{"-orders", file}, &out, &out)
		if !strings.Contains(out.String(), want) {
			t.Errorf("the output lacks %q:\n%s", want, &out)
		}
	}
}

func TestCommandSaysWhatIsWrongWithItsFlags(t *testing.T) {
	for args, status := range map[string]int{
		"-help": exitOK, "-n 0": exitUsage, "-nonsense": exitUsage, "-orders /nowhere.csv": exitWrong,
	} {
		var out bytes.Buffer
		if got := command(t.Context(), strings.Fields(args), &out, &out); got != status {
			t.Errorf("%s: status %d, want %d\n%s", args, got, status, &out)
		}
	}
}
