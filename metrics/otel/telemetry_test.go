package otel_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"

	"github.com/railtoken/railtoken/middleware"
)

var parks = middleware.Requeue{Delay: time.Hour}

func TestAWaitIsLinkedToItsHolder(t *testing.T) {
	t.Parallel()
	inRun := parks // with a limit, its run finds out whether a task is parked
	inRun.Limits.Age = time.Hour
	r := newRig(t, inRun)
	first := r.enqueue("a")
	<-r.began
	second := r.enqueue("b")
	r.await(middleware.Parked, 1)
	works := time.Now()
	r.goOn <- nil
	if id := <-r.began; id != "b" {
		t.Fatalf("%s runs", id)
	}
	r.goOn <- nil
	holds, wait, runs := r.ended("railtoken.hold", 2), r.ended("railtoken.wait", 1)[0], r.ended("process audit", 3)
	// The release that lets the second hold begin may be reported after its end.
	slices.SortFunc(holds, func(a, b sdk.ReadOnlySpan) int { return a.StartTime().Compare(b.StartTime()) })
	if wait.SpanContext().TraceID() != second.TraceID() || holds[0].SpanContext().TraceID() != first.TraceID() {
		t.Error("a span is not in the trace of its producer")
	}
	if got := valueOf(wait, "railtoken.blocked_by"); !strings.HasSuffix(got, "/audit/a") || valueOf(wait, "railtoken.outcome") != "acquired" {
		t.Errorf("blocked by %q: %v", got, wait.Attributes())
	}
	if links := wait.Links(); len(links) != 1 || !links[0].SpanContext.Equal(holds[0].SpanContext()) {
		t.Errorf("links %v, want %v", links, holds[0].SpanContext())
	}
	// The next hold may begin before this process learns of the release, with which the first one ends.
	if wait.EndTime().Before(works) || !wait.StartTime().After(holds[0].StartTime()) || !wait.EndTime().Equal(holds[1].StartTime()) {
		t.Error("the wait is not from the conflict until the next hold")
	}
	refused := 0
	for _, run := range runs {
		if parent := run.Parent(); parent.SpanID() != first.SpanID() && parent.SpanID() != second.SpanID() || run.Status().Code == codes.Error {
			t.Errorf("a run has the parent %v and the status %v", parent, run.Status())
		}
		for _, e := range run.Events() {
			if e.Name == "railtoken.refused" && len(run.Links()) == 1 && run.Links()[0].SpanContext.Equal(holds[0].SpanContext()) {
				refused++
			}
		}
	}
	if refused != 1 {
		t.Errorf("%d runs tell what blocked them", refused)
	}
	nothingHasTheKey(t, r)
}

// nothingHasTheKey fails if a span or a metric has the business key.
func nothingHasTheKey(t *testing.T, r *rig) {
	t.Helper()
	_, text := r.metrics()
	for _, s := range r.spans.Ended() {
		text += fmt.Sprintln(s.Name(), s.Attributes(), s.Events(), s.Links(), s.Status())
	}
	if strings.Contains(text, "xyzzy") || !strings.Contains(text, "key_hash") {
		t.Errorf("the key is in\n%s", text)
	}
}

func TestAHolderElsewhereIsNamed(t *testing.T) {
	t.Parallel()
	r := newRig(t, middleware.Wait{Max: time.Minute})
	lease := r.hold()
	r.enqueue("a")
	r.await(middleware.Refused, 1)
	if err := lease.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-r.began
	r.goOn <- nil
	wait := r.ended("railtoken.wait", 1)[0]
	if got := valueOf(wait, "railtoken.blocked_by"); got != "elsewhere/1/other/x" || len(wait.Links()) > 0 {
		t.Errorf("blocked by %q, links %v", got, wait.Links())
	}
}

func TestALostLeaseIsAnErrorOfItsHold(t *testing.T) {
	t.Parallel()
	r := newRig(t, parks)
	r.enqueue("a")
	<-r.began
	r.redis.Set(t.Context(), "railtoken:lock:{"+orderKey+"}", "another program", 100*time.Millisecond)
	hold := r.ended("railtoken.hold", 1)[0]
	if hold.Status().Code != codes.Error || len(hold.Events()) != 1 || !strings.Contains(fmt.Sprint(hold.Events()), "taken") {
		t.Errorf("%v, %v", hold.Status(), hold.Events())
	}
}

func TestATaskThatFailsIsAnErrorOfItsRun(t *testing.T) {
	t.Parallel()
	r := newRig(t, parks)
	r.enqueue("a")
	<-r.began
	r.goOn <- errors.New("its text may have secrets of order xyzzy")
	if run := r.ended("process audit", 1)[0]; run.Status().Code != codes.Error {
		t.Errorf("%v", run.Status())
	}
	r.ended("railtoken.hold", 1) // with the answer to the acknowledgement, which may come after the run has ended
	nothingHasTheKey(t, r)
}

func TestMetricsHaveDottedNames(t *testing.T) {
	t.Parallel()
	r := newRig(t, parks)
	r.enqueue("a")
	<-r.began
	r.enqueue("b")
	r.await(middleware.Parked, 1)
	got, _ := r.metrics()
	for name, want := range map[string]float64{
		"railtoken.attempts": 2, "railtoken.waits": 1, "railtoken.conflicts": 1, "railtoken.parked": 1, "railtoken.inspect.up": 1,
		"railtoken.node.votes": 1,
	} {
		if got[name] != want {
			t.Errorf("%s is %v, want %v", name, got[name], want)
		}
	}
	r.goOn <- nil
	<-r.began
	r.goOn <- nil
	r.await(middleware.Released, 2)
	got, _ = r.metrics()
	for name, want := range map[string]float64{
		"railtoken.wait": 1, "railtoken.hold": 2, "railtoken.wake": 1, "railtoken.wakes": 1, "railtoken.leases.lost": 0,
	} {
		if value, found := got[name]; !found || value != want {
			t.Errorf("%s is %v, want %v", name, value, want)
		}
	}
}

func TestHeadersKeepWhatIsGiven(t *testing.T) {
	t.Parallel()
	r := newRig(t, parks)
	ctx, span := r.tracer.Start(t.Context(), "request")
	defer span.End()
	given := map[string]string{"tenant": "7"}
	got := r.telemetry.Headers(ctx, given)
	if got["tenant"] != "7" || !strings.Contains(got["traceparent"], span.SpanContext().SpanID().String()) || len(given) != 1 {
		t.Errorf("%v, %v", got, given)
	}
}
