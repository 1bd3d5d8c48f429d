package tasks_test

import (
	"math"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/railtoken/railtoken/bench/internal/measure"
	"github.com/railtoken/railtoken/bench/internal/results"
	"github.com/railtoken/railtoken/bench/internal/tasks"
)

func TestAShortRunFillsEachKindOfTable(t *testing.T) {
	t.Parallel()
	needRedis(t)
	for table, rows := range map[string]int{
		"K20": 8, "sellers": 5, "K20-busy": 3, "K20-computes": 3, "hotkey": 6, "hot-ahead": 3, "wake": 3, "wake-all": 4, "noisy-tenant": 5,
	} {
		t.Run(table, func(t *testing.T) {
			t.Parallel()
			r, err := measureOnce(t, table, "")
			if err != nil {
				t.Fatal(err)
			}
			if len(r.Tables) != 1 || r.Tables[0].Name != table || r.Tables[0].Title == "" || len(r.Tables[0].Rows) != rows {
				t.Fatalf("got %+v", r.Tables)
			}
			for _, row := range r.Tables[0].Rows {
				if row.Note != "" {
					t.Errorf("%s: %s", row.Name, row.Note)
				}
				numbers := 0
				for _, values := range row.Values {
					if len(values) == 1 && !math.IsNaN(values[0]) {
						numbers++
					}
				}
				if numbers < 2 {
					t.Errorf("%s has the figures %v", row.Name, row.Values)
				}
			}
		})
	}
}

func TestOrdersAreReadFromAFile(t *testing.T) {
	t.Parallel()
	needRedis(t)
	file := filepath.Join(t.TempDir(), "orders.csv")
	if err := os.WriteFile(file, []byte("order_id,seller_ids\na,s1\nb,s2 s3\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := measureOnce(t, "orders", file)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Tables) != 1 || !regexp.MustCompile("^real orders: 4 tasks").MatchString(r.Tables[0].Title) {
		t.Errorf("got %+v", r.Tables)
	}
}

func TestOrdersThatCannotBeReadAreAnError(t *testing.T) {
	t.Parallel()
	if r, err := measureOnce(t, "orders", "nowhere.csv"); err == nil || len(r.Tables) > 0 {
		t.Errorf("got %v, %v", r.Tables, err)
	}
}

func measureOnce(t *testing.T, table, orders string) (*results.Results, error) {
	t.Helper()
	r := &results.Results{}
	return r, tasks.Measure(t.Context(), &measure.Env{
		Dir: t.TempDir(), Rounds: 1, Scale: 2, Run: regexp.MustCompile("^" + table + "$"), Orders: orders, Results: r,
	})
}
