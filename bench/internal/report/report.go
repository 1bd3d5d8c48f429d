// Package report writes the results of a benchmark as Markdown with plots in SVG.
package report

import (
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"text/template"

	"github.com/railtoken/railtoken/bench/internal/results"
	"github.com/railtoken/railtoken/bench/internal/targets"
)

// Name is what the report, the file of its figures and the directory of its plots are called.
const Name = "benchmarks"

//go:embed benchmarks.md.tmpl
var text string

// Write writes the report to the directory: benchmarks.md, the figures as benchmarks.json and the plots to benchmarks/.
// Plots of an earlier report are removed.
func Write(r *results.Results, dir string) error {
	plots := filepath.Join(dir, Name)
	if err := os.RemoveAll(plots); err != nil {
		return err
	}
	if err := os.MkdirAll(plots, 0o755); err != nil { //nolint:gosec // it is for all to read
		return err
	}
	figures := filepath.Join(dir, Name+".json")
	if err := r.Write(figures); err != nil {
		return err
	}
	r, err := results.Read(figures) // as rounded there, so that the report can be made from them again
	if err != nil {
		return err
	}
	errs := []error{create(filepath.Join(dir, Name+".md"), func(out io.Writer) error { return Markdown(out, r) })}
	for _, p := range allPlots {
		errs = append(errs, create(filepath.Join(plots, p.file+".svg"), func(out io.Writer) error { return p.write(out, r) }))
	}
	return errors.Join(errs...)
}

func create(file string, write func(io.Writer) error) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	return errors.Join(write(f), f.Close())
}

// Markdown writes the report. Figures that were not measured are shown as "-".
func Markdown(out io.Writer, r *results.Results) error {
	verdicts := targets.Judge(r)
	functions := template.FuncMap{
		"col": newColumn,
		"get": func(table, row, column string, base ...string) string {
			return shown(newColumn("", table, column, base...).values(r, row))
		},
		"grid":     func(first string, columns ...column) string { return grid(r, first, columns) },
		"ours":     func(first string, columns ...column) string { return gridOfOurs(r, first, columns) },
		"title":    func(table string) string { return titleOf(r, table) },
		"notes":    func(tables ...string) string { return notes(r, tables) },
		"behind":   func() string { return behind(r) },
		"judged":   func() int { return len(verdicts) },
		"met":      func() int { return len(verdicts) - len(targets.Missed(verdicts)) },
		"missed":   func() string { return byTable(targets.Missed(verdicts)) },
		"join":     func(names []string) string { return strings.Join(names, ", ") },
		"versions": func() string { return strings.Join(r.Setting.Versions, ", ") },
	}
	t, err := template.New(Name).Funcs(functions).Parse(text)
	if err != nil {
		return err
	}
	return t.Execute(out, r)
}

// Tables writes every table in full and the verdicts: what a run of a part shows.
func Tables(out io.Writer, r *results.Results) error {
	var b strings.Builder
	for _, t := range r.Tables {
		var columns []column
		for _, name := range t.Columns {
			columns = append(columns, column{header: name, table: t.Name, name: name})
		}
		fmt.Fprintf(&b, "**%s**: %s\n\n%s\n%s\n", t.Name, t.Title, grid(r, "", columns), notes(r, []string{t.Name}))
	}
	b.WriteString(Verdicts(targets.Judge(r)))
	_, err := io.WriteString(out, b.String())
	return err
}

// Verdicts returns a Markdown table of them.
func Verdicts(verdicts []targets.Verdict) string {
	var b strings.Builder
	writeRow(&b, "", "Scenario", "Target", "Bound", "Measured")
	writeRow(&b, "---", "---", "---", "---:", "---:")
	for _, v := range verdicts {
		met := "met"
		if !v.Met {
			met = "missed"
		}
		writeRow(&b, met, v.Table, v.What, bound(v.Bound), WithQuartiles(v.Got))
	}
	return b.String()
}

// byTable returns a Markdown table with a row for each scenario that has verdicts.
func byTable(verdicts []targets.Verdict) string {
	var b strings.Builder
	writeRow(&b, "Scenario", "Target: measured, with its bound")
	writeRow(&b, "---", "---")
	for len(verdicts) > 0 {
		var all []string
		table := verdicts[0].Table
		for ; len(verdicts) > 0 && verdicts[0].Table == table; verdicts = verdicts[1:] {
			v := verdicts[0]
			all = append(all, fmt.Sprintf("%s: %s (%s)", v.What, WithQuartiles(v.Got), bound(v.Bound)))
		}
		writeRow(&b, table, strings.Join(all, "; "))
	}
	return b.String()
}

func bound(b targets.Bound) string {
	if b.Least {
		return "≥ " + Number(b.Value)
	}
	return "≤ " + Number(b.Value)
}

func titleOf(r *results.Results, table string) string {
	if t := r.Table(table); t != nil {
		return t.Title
	}
	return "not measured"
}

// notes lists what the rows of the tables have to say, the same note of several rows once.
func notes(r *results.Results, tables []string) string {
	var b strings.Builder
	for _, name := range tables {
		t := r.Table(name)
		if t == nil {
			continue
		}
		var order []string
		rows := map[string][]string{} // by their notes
		for _, row := range t.Rows {
			if row.Note != "" && rows[row.Note] == nil {
				order = append(order, row.Note)
			}
			rows[row.Note] = append(rows[row.Note], row.Name)
		}
		for _, note := range order {
			fmt.Fprintf(&b, "- %s, %s: %s\n", name, strings.Join(rows[note], ", "), note)
		}
	}
	return b.String()
}
