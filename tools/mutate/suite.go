package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// suite is the test binary of a package, in which the mutants are compiled in.
type suite struct {
	folder string // of the package, relative to root
	dir    string // absolute; the tests run in it
	binary string
	flags  []string // of every run
	// patience is how long the tests may take that are tried on one mutant, by what they take one by one. A mutant that only others
	// would kill counts as alive.
	patience time.Duration
	tests    []*test  // quickest first
	linked   []string // the Lua files that the tests can reach, if that is known
}

// test is a test, example or fuzz target of a suite.
type test struct {
	name   string
	took   time.Duration
	reach  map[int]bool // the mutants that it reaches; nil if that is unknown
	killed int          // how many mutants it has killed
}

// compileSuite builds the test binary of a package.
func compileSuite(ctx context.Context, root, folder, overlay, binary string, short bool) (*suite, []byte, error) {
	cmd := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-overlay", overlay, "-o", binary, "./"+folder)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, out, fmt.Errorf("go test -c ./%s: %w", folder, err)
	}
	if _, err := os.Stat(binary); err != nil {
		return nil, nil, fmt.Errorf("%s has no tests", folder)
	}
	s := &suite{folder: folder, dir: filepath.Join(root, folder), binary: binary}
	// A package with properties tries the same cases each time, and leaves no file with those that failed.
	if rapid := []string{"-rapid.seed=1", "-rapid.nofailfile"}; s.command(ctx, append(rapid, "-test.list", "^$")...).Run() == nil {
		s.flags = rapid
	}
	if short {
		s.flags = append(s.flags, "-test.short")
	}
	return s, nil, nil
}

// link notes which Lua files are compiled into the binary.
func (s *suite) link(ctx context.Context, scratch string) error {
	path := filepath.Join(scratch, "linked")
	if err := os.RemoveAll(path); err != nil {
		return err
	}
	cmd := s.command(ctx, "-test.list", "^$")
	cmd.Env = append(cmd.Environ(), "MUTANT_LINKED="+path)
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("the tests of %s: %w", s.folder, err)
	}
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("%s has no Lua", s.folder)
	}
	s.linked = strings.Fields(string(text))
	return err
}

// measure notes how long each test takes and, if reach is set, which mutants it reaches. A test that fails without a mutant is left
// out.
func (s *suite) measure(ctx context.Context, scratch string, reach bool) error {
	var err error
	if reach {
		err = s.measureEach(ctx, scratch)
	} else {
		err = s.measureTogether(ctx)
	}
	if err == nil && len(s.tests) == 0 {
		err = fmt.Errorf("no test of %s passes", s.folder)
	}
	slices.SortStableFunc(s.tests, func(a, b *test) int { return cmp.Compare(a.took, b.took) })
	return err
}

// verdict finds the name of a test, its outcome and how long it took.
var verdict = regexp.MustCompile(`(?m)^--- (PASS|FAIL|SKIP): (\S+) \(([0-9.]+)s\)$`)

// measureTogether runs all tests in one process.
func (s *suite) measureTogether(ctx context.Context) error {
	out, err := s.command(ctx, append(slices.Clone(s.flags), "-test.v", "-test.count=1", "-test.parallel=6")...).Output()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if len(out) == 0 {
		return fmt.Errorf("the tests of %s: %w", s.folder, err)
	}
	for _, found := range verdict.FindAllSubmatch(out, -1) {
		name := string(found[2])
		if string(found[1]) == "FAIL" {
			fmt.Fprintf(os.Stderr, "left out, because it fails without a mutant: %s %s\n", s.folder, name)
			continue
		}
		took, err := time.ParseDuration(string(found[3]) + "s")
		if err != nil {
			return err
		}
		s.tests = append(s.tests, &test{name: name, took: took})
	}
	return nil
}

// measureEach runs each test in a process of its own.
func (s *suite) measureEach(ctx context.Context, scratch string) error {
	list, err := s.command(ctx, "-test.list", ".").Output()
	if err != nil {
		return fmt.Errorf("the tests of %s: %w", s.folder, err)
	}
	for name := range strings.FieldsSeq(string(list)) {
		if strings.HasPrefix(name, "Benchmark") {
			continue
		}
		t := &test{name: name}
		path := filepath.Join(scratch, "reached")
		if err := os.RemoveAll(path); err != nil {
			return err
		}
		began := time.Now()
		outcome, _ := s.run(ctx, []*test{t}, 3*time.Minute, []string{"MUTANT_REACHED=" + path})
		if err := ctx.Err(); err != nil {
			return err
		}
		t.took = time.Since(began)
		if outcome != alive {
			fmt.Fprintf(os.Stderr, "left out, because it fails without a mutant: %s %s\n", s.folder, name)
			continue
		}
		if t.reach, err = readNumbers(path); err != nil {
			return err
		}
		s.tests = append(s.tests, t)
	}
	return nil
}

// readNumbers returns the numbers of a file, one a line; none if there is no such file.
func readNumbers(path string) (map[int]bool, error) {
	numbers := map[int]bool{}
	file, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return numbers, nil
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		n, err := strconv.Atoi(lines.Text())
		if err != nil {
			return nil, err
		}
		numbers[n] = true
	}
	return numbers, nil
}

// command returns a call of the binary.
func (s *suite) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, s.binary, args...)
	cmd.Dir = s.dir
	// The children of a test end with it: see package process. Their pipes must not hold up the next mutant.
	cmd.WaitDelay = 2 * time.Second
	return cmd
}
