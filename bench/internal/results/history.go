package results

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// latest is what the report calls the run that it shows, when no release has kept it.
const latest = "this page"

// versionName is the version of a release.
var versionName = regexp.MustCompile(`^v(\d+)\.(\d+)\.(\d+)$`)

// run is a column of the history: the results that a release has kept, or those of the report.
type run struct {
	name string
	*Results
}

// headline is a row of the history: a figure of one contestant.
type headline struct {
	what, row string
	column
}

func newHeadline(what, table, row, name string, base ...string) headline {
	return headline{what, row, newColumn("", table, name, base...)}
}

// historyDir is where releases keep their results, below the directory of the report.
func historyDir(dir string) string { return filepath.Join(dir, reportName, "history") }

// Keep writes the results as those of a release to benchmarks/history/VERSION.json in the directory of the report. It
// refuses to replace the results of a version.
func Keep(r *Results, dir, version string) error {
	if !versionName.MatchString(version) {
		return fmt.Errorf("%q is no version of a release, such as v0.2.0", version)
	}
	file := filepath.Join(historyDir(dir), version+".json")
	if _, err := os.Stat(file); err == nil {
		return fmt.Errorf("%s exists: a release is not measured twice", file)
	}
	if err := os.MkdirAll(historyDir(dir), 0o755); err != nil { //nolint:gosec // it is for all to read
		return err
	}
	return r.Write(file)
}

// readHistory returns the kept results, the oldest version first. There are none without a directory.
func readHistory(dir string) (runs []run, err error) {
	files, err := filepath.Glob(filepath.Join(historyDir(dir), "*.json"))
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".json")
		if !versionName.MatchString(name) {
			return nil, fmt.Errorf("%s is not named after the version of a release", file)
		}
		r, err := Read(file)
		if err != nil {
			return nil, err
		}
		runs = append(runs, run{name, r})
	}
	slices.SortFunc(runs, func(a, b run) int { return slices.Compare(numbers(a.name), numbers(b.name)) })
	return runs, nil
}

// numbers returns those of a version.
func numbers(version string) (all []int) {
	for _, digits := range versionName.FindStringSubmatch(version)[1:] {
		n, _ := strconv.Atoi(digits)
		all = append(all, n)
	}
	return all
}

// history returns a table in Markdown with a column for each release, and one for the results unless a release has kept
// them. Figures that a run did not measure are left empty.
func history(r *Results, kept []run, headlines []headline) string {
	runs := slices.Clone(kept)
	isKept := func(k run) bool {
		return k.Took == r.Took && k.Setting.Commit == r.Setting.Commit && k.Setting.Command == r.Setting.Command
	}
	if !slices.ContainsFunc(kept, isKept) {
		runs = append(runs, run{latest, r})
	}
	header, rule, machine, versions := []string{"railtoken"}, []string{"---"}, []string{"Machine"}, []string{"Go, Redis"}
	for _, one := range runs {
		header, rule = append(header, one.name), append(rule, "---:")
		machine = append(machine, one.Setting.Machine)
		versions = append(versions, strings.TrimPrefix(one.Setting.Go, "go")+", "+one.Setting.Redis)
	}
	var b strings.Builder
	writeRow(&b, header...)
	writeRow(&b, rule...)
	for _, h := range headlines {
		cells := []string{h.what}
		for _, one := range runs {
			cells = append(cells, h.cell(one.Results, h.row))
		}
		writeRow(&b, cells...)
	}
	writeRow(&b, machine...)
	writeRow(&b, versions...)
	return b.String()
}
