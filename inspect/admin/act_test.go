package admin_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/railtoken/railtoken/inspect/admin"
	"github.com/railtoken/railtoken/middleware"
)

func TestTheFormsOfAKeySteerItsWaiters(t *testing.T) {
	t.Parallel()
	r := newRig(t, admin.Options{Actions: true}).crowd("order:1", "second", "third", "fourth")
	page := func() string { return r.get(http.StatusOK, "/key?key=order%3A1") }
	formOf := func(id string) string { // the part of the page with its form
		_, rest, _ := strings.Cut(page(), ">default/"+id+"<")
		return rest
	}
	contains(t, "the page", r.post(http.StatusSeeOther, "put-first", r.form(formOf("fourth"), "put-first")), "now the first")
	if text := page(); strings.Index(text, ">default/fourth<") > strings.Index(text, ">default/second<") {
		t.Error("the fourth is not the first")
	}
	contains(t, "the page", r.post(http.StatusSeeOther, "put-last", r.form(formOf("second"), "put-first")), "now the last")
	if text := page(); strings.Index(text, ">default/second<") < strings.Index(text, ">default/third<") {
		t.Error("the second is not the last")
	}
	drop := r.form(r.get(http.StatusOK, "/drop?queue=default&task=second"), "drop")
	contains(t, "the page", r.post(http.StatusSeeOther, "drop", drop), "default/second is deleted")
	contains(t, "a second drop", r.post(http.StatusConflict, "drop", drop), "Nothing was changed")
	contains(t, "the page", r.post(http.StatusSeeOther, "wake", r.form(page(), "wake")), "default/fourth was woken")
}

func TestATaskIsCancelledOnThePage(t *testing.T) {
	t.Parallel()
	r := newRig(t, admin.Options{Actions: true, Operator: func(*http.Request) string { return "ann" }}).crowd("order:1", "second", "third")
	contains(t, "the page of the task", r.get(http.StatusOK, "/task?queue=default&task=second"), "/cancel?queue=default&amp;task=second")
	form := r.form(r.get(http.StatusOK, "/cancel?queue=default&task=second"), "cancel")
	form.Set("why", "ordered twice")
	contains(t, "the page", r.post(http.StatusSeeOther, "cancel", form), "default/second was cancelled", "Audit of this key", "ordered twice", "archived")
	contains(t, "a second one", r.post(http.StatusConflict, "cancel", form), "Nothing was changed")
	form = r.form(r.get(http.StatusOK, "/cancel?queue=default&task=third"), "cancel")
	form.Set("discard", "1")
	contains(t, "the page", r.post(http.StatusSeeOther, "cancel", form), "default/third was cancelled", "deleted")
}

func TestTheAuditHasEveryAction(t *testing.T) {
	t.Parallel()
	r := newRig(t, admin.Options{Actions: true, Operator: func(*http.Request) string { return "ann" }}).crowd("order:1", "second", "third")
	page := func() string { return r.get(http.StatusOK, "/key?key=order%3A1") }
	r.post(http.StatusSeeOther, "put-first", r.form(page(), "put-first"))
	drop := r.form(r.get(http.StatusOK, "/drop?queue=default&task=second"), "drop")
	drop.Set("why", "ordered twice")
	r.post(http.StatusSeeOther, "drop", drop)
	r.post(http.StatusConflict, "drop", drop)
	r.post(http.StatusSeeOther, "wake", r.form(page(), "wake"))
	contains(t, "the audit of the key", page(), "Audit of this key", "put-first", "default/second is deleted", "ordered twice")
	entries, err := r.inspector.Audit(t.Context(), 100)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range slices.Backward(entries) {
		if e.By != "ann" || e.Key != "order:1" {
			t.Errorf("%+v", e)
		}
		got = append(got, fmt.Sprint(e.Action, " ", e.Outcome))
	}
	want := []string{
		"put-first begun", "put-first done", "drop begun", "drop done", "drop begun", "drop failed", "wake begun", "wake done",
	}
	if !slices.Equal(got, want) {
		t.Errorf("the audit has %q", got)
	}
}

func TestADepositionNeedsTheKeyTypedAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t, admin.Options{Actions: true, Operator: func(*http.Request) string { return "ann" }}).crowd("order:1", "second")
	form := r.form(r.get(http.StatusOK, "/key?key=order%3A1"), "depose")
	form.Set("why", "it hangs")
	form.Set("typed", "order:2")
	contains(t, "the answer", r.post(http.StatusBadRequest, "depose", form), "not the key of this page")
	if r.state("first") != "active" {
		t.Fatalf("the holder is %s", r.state("first"))
	}
	form.Set("typed", "order:1")
	contains(t, "the answer", r.post(http.StatusSeeOther, "depose", form), "The key is free", "it hangs")
	r.await(middleware.Acquired, "second")
	contains(t, "the audit", r.get(http.StatusOK, "/audit"), "ann", "it hangs", "done")
	contains(t, "a second deposition", r.post(http.StatusConflict, "depose", form), "look again")
}

func TestDeadLettersReplayAsPreviewed(t *testing.T) {
	t.Parallel()
	r := newRig(t, admin.Options{Actions: true}).crowd("order:1")
	for _, id := range []string{"a", "b", "c"} {
		r.task(middleware.Parked, "limited", "order:1", id)
		r.expire("/key?key=order%3A1", id)
	}
	text := r.get(http.StatusOK, "/archived?queue=default&because=conflicts")
	contains(t, "the list", text, "default/a", "default/b", "default/c", "order:1")
	contains(t, "another reason", r.get(http.StatusOK, "/archived?queue=default&because=age"), "No archived task with this reason")
	contains(t, "the answer", r.post(http.StatusSeeOther, "replay", r.form(text, "replay")), "runs again")
	form := r.form(r.get(http.StatusOK, "/replay?queue=default&because=conflicts"), "replay-all")
	if form.Get("most") != "2" {
		t.Errorf("the preview has %s tasks", form.Get("most"))
	}
	form.Set("newest", "1")
	contains(t, "the answer", r.post(http.StatusSeeOther, "replay-all", form), "0 tasks run again")
	form = r.form(r.get(http.StatusOK, "/replay?queue=default&because=conflicts"), "replay-all")
	contains(t, "the answer", r.post(http.StatusSeeOther, "replay-all", form), "2 tasks run again")
	contains(t, "the audit", r.get(http.StatusOK, "/audit"), "default/a", "runs again", "queue default", "2 tasks run again")
	contains(t, "a second replay", r.post(http.StatusConflict, "replay", r.form(text, "replay")), "Nothing was changed")
}

// A browser counts characters, and the audit bytes.
func TestAReasonThatIsTooLongChangesNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t, admin.Options{Actions: true}).crowd("order:1", "second")
	long := strings.Repeat("ж", 300)
	depose := r.form(r.get(http.StatusOK, "/key?key=order%3A1"), "depose")
	depose.Set("typed", "order:1")
	depose.Set("why", long)
	contains(t, "the answer", r.post(http.StatusBadRequest, "depose", depose), "600 bytes", "Nothing was changed")
	drop := r.form(r.get(http.StatusOK, "/drop?queue=default&task=second"), "drop")
	drop.Set("why", long)
	contains(t, "the answer", r.post(http.StatusBadRequest, "drop", drop), "600 bytes", "Nothing was changed")
	if entries, err := r.inspector.Audit(t.Context(), 1); len(entries) != 0 || err != nil || r.state("second") != "retry" {
		t.Errorf("the audit has %v, %v, and the task is %s", entries, err, r.state("second"))
	}
}
