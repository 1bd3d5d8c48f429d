package admin_test

import (
	"net/http"
	"testing"

	"github.com/railtoken/railtoken/inspect"
	"github.com/railtoken/railtoken/inspect/admin"
	"github.com/railtoken/railtoken/middleware"
)

func TestThePageKnowsTheHeadOfASequence(t *testing.T) {
	t.Parallel()
	r := newRig(t, admin.Options{Actions: true}).behindFailed("order:1")
	page := r.get(http.StatusOK, "/key?key=order%3A1")
	contains(t, "the page", page, "it is the turn of", ">default/broken<", "has failed and runs again at", "/drop?queue=default&amp;task=broken")
	contains(t, "the answer", r.post(http.StatusConflict, "wake", r.form(page, "wake")), "no task was woken",
		"the turn of default/broken: it has failed 1 of 26 times, the last time with: "+errBroken.Error(), "2 tasks wait behind it in order",
		"railtoken drop default/broken")
	if state := r.state("next") + r.state("last"); state != "retryretry" {
		t.Errorf("the tasks behind the head are %s", state)
	}
	drop := r.get(http.StatusOK, "/drop?queue=default&task=broken")
	contains(t, "the question", drop, "Has failed", "order:1")
	contains(t, "the answer", r.post(http.StatusSeeOther, "drop", r.form(drop, "drop")), "default/broken is deleted")
	r.await(middleware.Acquired, "next")
	entries, err := r.inspector.Audit(t.Context(), 100)
	if err != nil || len(entries) != 4 || entries[0].Outcome != inspect.Done || entries[0].Key != "order:1" ||
		entries[2].Action != inspect.ActionWake || entries[2].Outcome != inspect.Failed {
		t.Errorf("the audit has %+v, %v", entries, err)
	}
}
