package main

import (
	"fmt"
	"strings"

	"golang.org/x/mod/semver"
)

// change is how far an API has changed.
type change int

const (
	same change = iota
	additions
	incompatible
)

// changeOf reads the report of apidiff.
func changeOf(report string) change {
	switch {
	case strings.Contains(report, "Incompatible changes:"):
		return incompatible
	case strings.Contains(report, "Compatible changes:"):
		return additions
	}
	return same
}

// sufficient returns why a version says less than the change since the last one, or nil. docs/compatibility.md has the rule: a patch keeps
// the API, a minor version of v0 may break it, and one of v1 may only add to it.
func sufficient(last, version string, c change) error {
	if semver.Compare(version, last) <= 0 {
		return fmt.Errorf("%s is not after %s, the last release", version, last)
	}
	major, minor := semver.Major(version) != semver.Major(last), semver.MajorMinor(version) != semver.MajorMinor(last)
	switch {
	case c == incompatible && !major && (semver.Major(version) != "v0" || !minor):
		return fmt.Errorf("%s after %s breaks programs that use it: restore what api-diff.txt lists, or choose a version that may", version, last)
	case c == additions && !minor && semver.Major(version) != "v0":
		return fmt.Errorf("%s after %s adds to the API: that takes a minor version", version, last)
	}
	return nil
}
