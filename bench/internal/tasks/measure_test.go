package tasks_test

import (
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/railtoken/railtoken/bench/internal/report"
	"github.com/railtoken/railtoken/bench/internal/tasks"
)

func TestAShortRunShowsEverySection(t *testing.T) {
	t.Parallel()
	needRedis(t)
	for section, tables := range map[string][]string{
		"tasks-noop":   {"noop"},
		"tasks-zipf":   {"zipf"},
		"tasks-hotkey": {"hotkey"},
		"tasks-wake":   {"wake", "wake-all"},
	} {
		t.Run(section, func(t *testing.T) {
			t.Parallel()
			shows(t, section, section, tables)
		})
	}
	for _, table := range []string{"K1", "K4", "K20", "orders", "sellers"} { // which take longest
		t.Run("tasks-contended/"+table, func(t *testing.T) {
			t.Parallel()
			shows(t, table, "tasks-contended", []string{table})
		})
	}
}

// shows checks that a short run of what is chosen gives a section with these tables.
func shows(t *testing.T, chosen, section string, tables []string) {
	t.Helper()
	env := report.Env{Dir: t.TempDir(), Reps: 1, Scale: 2, Run: regexp.MustCompile("^" + chosen + "$")}
	sections, err := tasks.Measure(t.Context(), env)
	if err != nil {
		t.Fatal(err)
	}
	if len(sections) != 1 || sections[0].Name != section || sections[0].Title == "" || sections[0].Text == "" {
		t.Fatalf("got %+v", sections)
	}
	s := sections[0]
	var names []string
	for _, table := range s.Tables {
		names = append(names, table.Name)
		checkTable(t, table)
	}
	if !slices.Equal(names, tables) {
		t.Errorf("got the tables %q, want %q", names, tables)
	}
	for _, chart := range s.Charts {
		if chart.File == "" || chart.Title == "" || len(chart.Groups)+len(chart.Series) == 0 {
			t.Errorf("the chart is %+v", chart)
		}
	}
}

func checkTable(t *testing.T, table *report.Table) {
	t.Helper()
	if table.Title == "" || len(table.Rows) < 3 {
		t.Errorf("%s: %d rows, %q", table.Name, len(table.Rows), table.Title)
	}
	for _, row := range table.Rows {
		if row.Note != "" {
			t.Errorf("%s: %s: %s", table.Name, row.Name, row.Note)
		}
		shown := 0
		for _, column := range table.Columns {
			if row.Cells[column] != "" || !math.IsNaN(row.Spread(column).Median) {
				shown++
			}
		}
		if shown < 3 {
			t.Errorf("%s: %s shows %d of %q", table.Name, row.Name, shown, table.Columns)
		}
	}
	if len(table.Targets) == 0 && table.Name != "noop" {
		t.Errorf("%s has no targets", table.Name)
	}
	for _, target := range table.Targets {
		if target.What == "" || math.IsNaN(target.Got.Median) {
			t.Errorf("%s: %+v", table.Name, target)
		}
	}
}

func TestATableIsChosenByItsOwnNameAndOrdersAreRead(t *testing.T) {
	t.Parallel()
	needRedis(t)
	file := filepath.Join(t.TempDir(), "orders.csv")
	if err := os.WriteFile(file, []byte("order_id,seller_ids\na,s1\nb,s2 s3\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	env := report.Env{Dir: t.TempDir(), Reps: 1, Scale: 2, Run: regexp.MustCompile("^orders$"), Orders: file}
	sections, err := tasks.Measure(t.Context(), env)
	if err != nil {
		t.Fatal(err)
	}
	if len(sections) != 1 || len(sections[0].Tables) != 1 || sections[0].Tables[0].Name != "orders" {
		t.Fatalf("got %+v", sections)
	}
	if title := sections[0].Tables[0].Title; !regexp.MustCompile("^real orders: 4 tasks").MatchString(title) {
		t.Errorf("the title is %q", title)
	}
}

func TestOrdersThatCannotBeReadAreAnError(t *testing.T) {
	t.Parallel()
	env := report.Env{Dir: t.TempDir(), Reps: 1, Scale: 2, Run: regexp.MustCompile("^orders$"), Orders: "nowhere.csv"}
	if sections, err := tasks.Measure(t.Context(), env); err == nil || len(sections) > 0 {
		t.Errorf("got %v, %v", sections, err)
	}
}
