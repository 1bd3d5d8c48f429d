package process

import (
	"bufio"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
)

func TestAllChildrenOfAProcessAreFound(t *testing.T) {
	t.Parallel()
	shell := exec.CommandContext(t.Context(), "sh", "-c", "sleep 60 & echo $!; sleep 60 & echo $!; wait")
	out, err := shell.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := shell.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		for _, child := range searchChildren(shell.Process.Pid) {
			_ = exec.Command("kill", strconv.Itoa(child)).Run()
		}
		_ = shell.Wait()
	}()
	var want []int
	lines := bufio.NewScanner(out)
	for range 2 {
		if !lines.Scan() {
			t.Fatal(lines.Err())
		}
		child, err := strconv.Atoi(strings.TrimSpace(lines.Text()))
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, child)
	}
	slices.Sort(want)
	for how, got := range map[string][]int{
		"by its threads":      childrenOf(shell.Process.Pid),
		"among all processes": searchChildren(shell.Process.Pid),
	} {
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", how, got, want)
		}
	}
}
