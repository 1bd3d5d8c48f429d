package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// errUnchecked says that something could not be checked. It is not success.
var errUnchecked = errors.New("NOT CHECKED")

// foundVulnerabilities is the exit status of govulncheck when the code reaches one.
const foundVulnerabilities = 3

// vulnerabilities asks the database of vulnerabilities about each module and returns a report for people. If the database cannot be
// reached, the error is errUnchecked.
func (r *rehearsal) vulnerabilities() (report string, err error) {
	for _, m := range r.modules {
		out, err := r.tool(filepath.Join(r.root, filepath.FromSlash(m.dir)), os.Environ(), "govulncheck", "./...")
		report += "# " + m.path() + "\n" + out + "\n"
		exit, ended := errors.AsType[*exec.ExitError](err)
		switch {
		case err == nil:
		case ended && exit.ExitCode() == foundVulnerabilities:
			return report, fmt.Errorf("%s reaches known vulnerabilities: update what vulnerabilities.txt names", m.path())
		default:
			// Without its database, govulncheck fails before it looks at any code, so the other modules would fail as well.
			lines := strings.Split(strings.TrimSpace(out), "\n")
			why := lines[len(lines)-1]
			return "NOT CHECKED: " + why + "\n", fmt.Errorf("%w: vulnerabilities: %s (GOVULNDB names another database)", errUnchecked, why)
		}
	}
	return report, nil
}
