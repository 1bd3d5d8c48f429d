package middleware_test

// The promises that were distilled from what users of task queues complain about, and the test that holds us to each:
//
//   - no silent drop: TestNoTaskIsDroppedSilently
//   - no retry consumed: TestAConflictUsesUpNoRetry
//   - also not the last: TestTheLastAttemptIsNotArchivedByAConflict
//   - bounded: TestWaitingEndsAtEachLimitWithTheReason
//   - no hot loop: TestAKeyThatIsHeldForLongMakesNoHotLoop
//   - a double release frees no other lock: TestADoubleReleaseFreesNoOtherLock
//   - a park during a release strands no task: TestAParkDuringAReleaseStrandsNoTask
//   - parked entries do not age out: TestParkedEntriesDoNotAgeOut
//   - NOSCRIPT after a failover: TestScriptsAreSentAgainAfterAFailover
//   - an early return is no failure: TestAnEarlyReturnIsNoFailure
//   - ties keep their order: TestTiesKeepTheirOrder
//   - a task that is enqueued while the holder runs waits: TestATaskThatIsEnqueuedWhileTheHolderRunsWaits
//   - every conflict has an event: TestEveryConflictHasAnEvent
//   - the commands of a cycle are counted: TestAParkedTaskCostsAFixedNumberOfCommands
//   - and those of a task without a conflict: TestAnUncontendedTaskCostsThreeCommands
//   - asynq's own tools, used on a waiter, strand no task: TestAToolUsedOnAWaiterStrandsNoTask
//   - used on the holder: TestAToolUsedOnTheHolderStrandsNoTask
//   - used on a queue: TestAToolUsedOnAQueueStrandsNoTask
//   - a queue that was paused at the release: TestAQueueResumedAfterTheReleaseStrandsNoTask
//   - an archived conflict that is run again: TestAnArchivedConflictThatIsRunAgainWaitsAndRuns
//   - a wake that goes with its task: TestAWakeThatGoesWithItsTaskGoesToTheNext

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/railtoken/railtoken/middleware"
)

// parkAlways returns the strategy of tests that need a task to be parked for certain.
func parkAlways() middleware.Requeue { return middleware.Requeue{} }

func TestEveryPromiseOfTheListHasItsTest(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]bool{}
	var list *ast.CommentGroup
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range parsed.Decls {
			if f, ok := d.(*ast.FuncDecl); ok {
				tests[f.Name.Name] = true
			}
		}
		if file == "guarantee_test.go" {
			list = parsed.Comments[0]
		}
	}
	lines := regexp.MustCompile(`(?m)^ {2}- .*$`).FindAllString(list.Text(), -1)
	if len(lines) < 20 {
		t.Fatalf("the list has %d promises", len(lines))
	}
	for _, line := range lines {
		name := regexp.MustCompile(`Test\w+$`).FindString(line)
		if name == "" || !tests[name] {
			t.Errorf("%q has no test", line)
		}
	}
}
