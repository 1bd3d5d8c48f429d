package main

import (
	"fmt"
	"strings"
)

// notes returns the section of a version in the change log. The first release has none before it is dated: then [Unreleased] names the
// version, and undated is true.
func notes(changelog, version string) (text string, undated bool, err error) {
	number := strings.TrimPrefix(version, "v")
	if text, ok := sectionOf(changelog, number); ok {
		return text, false, nil
	}
	if text, ok := sectionOf(changelog, "Unreleased"); ok && strings.HasPrefix(text, "This will be "+number) {
		return text, true, nil
	}
	return "", false, fmt.Errorf("CHANGELOG.md has no section [%s], and [Unreleased] does not begin with %q: write what a user notices", number, "This will be "+number)
}

// sectionOf returns what stands below a heading such as "## [0.1.0] - 2027-01-31"; false if that is nothing.
func sectionOf(changelog, name string) (string, bool) {
	var lines []string
	inside := false
	for line := range strings.Lines(changelog) {
		switch {
		case strings.HasPrefix(line, "## ["):
			inside = strings.HasPrefix(line, "## ["+name+"]")
		case inside:
			lines = append(lines, line)
		}
	}
	text := strings.TrimSpace(strings.Join(lines, ""))
	return text, text != ""
}
