package results

import (
	"embed"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/template"
)

// reportName is what the report, the file of its figures and the directory of its plots are called.
const reportName = "benchmarks"

//go:embed *.tmpl
var texts embed.FS

// WriteReport writes the report to the directory: benchmarks.md and benchmarks-load.md, the figures as benchmarks.json and the plots to benchmarks/.
// Plots of an earlier report are removed. Figures that were not measured are shown as "-". The history is that of the
// results in benchmarks/history/.
func WriteReport(r *Results, dir string) error {
	plots := filepath.Join(dir, reportName)
	if err := clearPlots(plots); err != nil {
		return err
	}
	figures := filepath.Join(dir, reportName+".json")
	if err := r.Write(figures); err != nil {
		return err
	}
	r, err := Read(figures) // as rounded there, so that the report can be made from them again
	if err != nil {
		return err
	}
	kept, err := readHistory(dir)
	if err != nil {
		return err
	}
	t, err := parseTemplates(r, kept...)
	if err != nil {
		return err
	}
	errs := []error{
		create(filepath.Join(dir, reportName+".md"), t.Lookup("page.md.tmpl"), r),
		create(filepath.Join(dir, reportName+"-load.md"), t.Lookup("load.md.tmpl"), r),
	}
	for _, one := range t.Templates() {
		if strings.HasSuffix(one.Name(), ".svg") {
			errs = append(errs, create(filepath.Join(plots, one.Name()), one, r))
		}
	}
	return errors.Join(errs...)
}

// clearPlots makes a directory for plots, or removes those that are in it.
func clearPlots(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // it is for all to read
		return err
	}
	old, err := filepath.Glob(filepath.Join(dir, "*.svg"))
	for _, file := range old {
		err = errors.Join(err, os.Remove(file))
	}
	return err
}

func create(file string, t *template.Template, r *Results) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	return errors.Join(t.Execute(f, r), f.Close())
}

// WriteTables writes every table in full and the verdicts: what a run of a part shows.
func WriteTables(out io.Writer, r *Results) error { return execute(out, "tables.md.tmpl", r) }

// WriteMissed writes the verdicts on the targets that were missed.
func WriteMissed(out io.Writer, r *Results) error { return execute(out, "missed.md.tmpl", r) }

func execute(out io.Writer, name string, r *Results) error {
	t, err := parseTemplates(r)
	if err != nil {
		return err
	}
	return t.ExecuteTemplate(out, name, r)
}

// parseTemplates returns the templates, with functions that know the results and those of the releases.
func parseTemplates(r *Results, kept ...run) (*template.Template, error) {
	verdicts := Judge(r)
	functions := template.FuncMap{
		"col": newColumn,
		"get": func(table, row, column string, base ...string) string {
			return Number(newColumn("", table, column, base...).values(r, row).Median())
		},
		"grid": func(first string, columns ...column) string { return grid(r, first, columns, "") },
		"ours": func(first string, columns ...column) string { return grid(r, first, columns, ours) },
		"whole": func(t *Table) string {
			var columns []column
			for _, name := range t.Columns {
				columns = append(columns, column{header: name, table: t.Name, name: name})
			}
			return grid(r, "", columns, "")
		},
		"title": func(table string) string {
			if t := r.Table(table); t != nil {
				return t.Title
			}
			return "not measured"
		},
		"tables": func(names ...string) []*Table {
			left := func(t *Table) bool { return !slices.Contains(names, t.Name) }
			return slices.DeleteFunc(slices.Clone(r.Tables), left)
		},
		"measured":  func(table string) bool { return r.Table(table) != nil },
		"headline":  newHeadline,
		"history":   func(headlines ...headline) string { return history(r, kept, headlines) },
		"ahead":     func(more bool, column string, tables ...string) string { return ahead(r, more, column, tables) },
		"verdicts":  func() []Verdict { return verdicts },
		"missed":    func() []Verdict { return Missed(verdicts) },
		"plot":      func(title, without string, columns ...column) plot { return newPlot(r, title, without, columns) },
		"quartiles": WithQuartiles,
		"join":      func(names []string) string { return strings.Join(names, ", ") },
	}
	return template.New("").Funcs(functions).ParseFS(texts, "*.tmpl")
}

// ahead returns a row for each table in which others are ahead of railtoken with its defaults, by more than 1 %. More is
// better, or less.
func ahead(r *Results, more bool, figure string, tables []string) string {
	var b strings.Builder
	for _, name := range tables {
		t := r.Table(name)
		if t == nil {
			continue
		}
		var all []string
		for _, row := range t.Rows {
			ratio := t.Against(figure, ours, row.Name).Spread()
			isAhead := more && ratio.Median < 0.99 || !more && ratio.Median > 1.01
			if isAhead && !strings.HasPrefix(row.Name, ours) && row.Name != "bare" {
				theirs := newColumn("", name, figure).cell(r, row.Name)
				all = append(all, fmt.Sprintf("%s %s: %s", row.Name, theirs, WithQuartiles(ratio)))
			}
		}
		if len(all) > 0 {
			writeRow(&b, name, figure, Number(t.Of(ours, figure).Median()), strings.Join(all, "; "))
		}
	}
	return b.String()
}
