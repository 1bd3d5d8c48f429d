package locks

import (
	"strings"

	"github.com/railtoken/railtoken/bench/internal/report"
)

// callersChart plots the pairs by the number of callers.
func callersChart(file, title string) func(*report.Section) []*report.Chart {
	return func(s *report.Section) []*report.Chart {
		chart := &report.Chart{File: file, Title: title + ": pairs of acquire and release in a second", YLabel: rate, LogY: true}
		for _, t := range s.Tables {
			_, callers, _ := strings.Cut(t.Title, ", ")
			callers, _, _ = strings.Cut(callers, ",")
			chart.Groups = append(chart.Groups, report.BarsOf(callers, t, rate))
		}
		return []*report.Chart{chart}
	}
}

// groups are named for what differs between the tables of a section.
var groups = map[string]string{
	"C1": "1 key, 1 process", "C4": "1 key, 4 processes", "C1x8": "8 keys, 1 process", "C4x8": "8 keys, 4 processes",
	"C1-five": "five servers, 1 key", "Dstop": "one stopped", "Dkill": "one killed",
	"A1-far": "one, 1 caller", "A128-far": "one, 128 callers", "B1-far": "five, 1 caller", "B128-far": "five, 128 callers",
}

func contendedCharts(s *report.Section) []*report.Chart {
	chart := &report.Chart{File: "locks-contended", Title: "64 callers: share of the ideal", YLabel: efficiency, Target: 1}
	for _, t := range s.Tables {
		chart.Groups = append(chart.Groups, report.BarsOf(groups[t.Name], t, efficiency))
	}
	return []*report.Chart{chart}
}

func outageCharts(s *report.Section) []*report.Chart {
	chart := &report.Chart{File: "locks-outage", Title: "Five servers: the median pair of one caller", YLabel: p50, LogY: true}
	for _, t := range s.Tables {
		broken := report.BarsOf(groups[t.Name], t, outage+p50)
		for i := range broken.Bars {
			bar := &broken.Bars[i]
			bar.Over = t.Row(bar.Name).Spread(outage+rate).Median == 0 // it did no pair in its slice
		}
		chart.Groups = append(chart.Groups, report.BarsOf("healthy", t, healthy+p50), broken)
	}
	return []*report.Chart{chart}
}

func farCharts(s *report.Section) []*report.Chart {
	chart := &report.Chart{
		File: "locks-far", Title: "Servers 2 ms away: pairs of acquire and release in a second", YLabel: rate, LogY: true,
	}
	for _, t := range s.Tables {
		chart.Groups = append(chart.Groups, report.BarsOf(groups[t.Name], t, rate))
	}
	return []*report.Chart{chart}
}
