package report

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"

	"github.com/railtoken/railtoken/bench/internal/setting"
)

// Report is everything that one run has measured.
type Report struct {
	Setting  setting.Setting
	Reps     int
	Took     string
	Sections []*Section
}

// Missed returns how many targets there are and how many of them were missed.
func (r *Report) Missed() (all, missed int) {
	for _, t := range r.tables() {
		for _, target := range t.Targets {
			all++
			if !target.Met() {
				missed++
			}
		}
	}
	return all, missed
}

func (r *Report) tables() (all []*Table) {
	for _, s := range r.Sections {
		all = append(all, s.Tables...)
	}
	return all
}

// Markdown writes the report. The charts are linked as files of the directory plots, which is relative to where the report will be.
func (r *Report) Markdown(out io.Writer, plots string) error {
	p := &printer{out: out}
	p.line("# Benchmarks")
	p.line("\nMade by `make bench`, in one run of %s. Do not edit: run it again.", r.Took)
	p.line("\n```\n%s```", r.Setting)
	p.line("\nContestants take turns within each of at least %d rounds, in another order each time. A figure is the median of the rounds, with the quartiles "+
		"in brackets. Ratios are those within a round: this machine is shared, and what it is good for changes from minute to minute. Quote ratios. "+
		"Figures where another one is ahead are printed like all others.", r.Reps)
	p.targets(r)
	p.line("\n## Contents\n")
	for _, s := range r.Sections {
		p.line("- [%s](#%s)", s.Title, anchor(s.Title))
	}
	for _, s := range r.Sections {
		p.section(s, plots)
	}
	return p.err
}

// printer writes lines until the first error.
type printer struct {
	out io.Writer
	err error
}

func (p *printer) line(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.out, format+"\n", args...)
	}
}

func (p *printer) row(cells []string) {
	for i, c := range cells {
		cells[i] = strings.ReplaceAll(c, "|", `\|`)
	}
	p.line("| %s |", strings.Join(cells, " | "))
}

// targets writes all of them in one table, those that were missed first.
func (p *printer) targets(r *Report) {
	all, missed := r.Missed()
	if all == 0 {
		return
	}
	p.line("\n## Targets\n\n%d of %d are met.\n", all-missed, all)
	p.row([]string{"", "Scenario", "Target", "Bound", "Measured"})
	p.row([]string{"---", "---", "---", "---:", "---:"})
	for _, met := range []bool{false, true} {
		for _, t := range r.tables() {
			for _, target := range t.Targets {
				if target.Met() == met {
					p.row(target.cells(t.Name))
				}
			}
		}
	}
}

func (t Target) cells(table string) []string {
	verdict, relation := "met", "≤"
	if !t.Met() {
		verdict = "**missed**"
	}
	if t.Least {
		relation = "≥"
	}
	return []string{verdict, table, t.What, relation + " " + Number(t.Bound), WithQuartiles(t.Got)}
}

func (p *printer) section(s *Section, plots string) {
	p.line("\n## %s", s.Title)
	if s.Text != "" {
		p.line("\n%s", strings.TrimSpace(s.Text))
	}
	for _, c := range s.Charts {
		p.line("\n![%s](%s/%s.svg)", c.Title, plots, c.File)
	}
	for _, t := range s.Tables {
		p.table(t)
	}
}

func (p *printer) table(t *Table) {
	p.line("\n**%s**: %s\n", t.Name, t.Title)
	p.row(append([]string{""}, t.Columns...))
	rule := slices.Repeat([]string{"---:"}, len(t.Columns)+1)
	rule[0] = "---"
	p.row(rule)
	for _, r := range t.Rows {
		cells := []string{r.Name}
		for _, c := range t.Columns {
			cells = append(cells, r.cell(c))
		}
		p.row(cells)
	}
	notes := slices.Clone(t.Notes)
	for _, r := range t.Rows {
		if r.Note != "" {
			notes = append(notes, r.Name+": "+r.Note)
		}
	}
	if len(notes) > 0 {
		p.line("")
	}
	for _, note := range notes {
		p.line("- %s", note)
	}
}

func (r *Row) cell(column string) string {
	if text, ok := r.Cells[column]; ok {
		return text
	}
	if len(r.Values[column]) == 0 {
		return ""
	}
	return WithQuartiles(r.Spread(column))
}

// anchor returns what a heading is called in links.
func anchor(title string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-' || unicode.IsLetter(r) || unicode.IsDigit(r):
			return unicode.ToLower(r)
		default:
			return -1
		}
	}, title)
}
