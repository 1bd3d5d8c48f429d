package main

import "testing"

func TestNestedEditsKeepTheirOrder(t *testing.T) {
	t.Parallel()
	const source = "a < b || c"
	var e edits
	e.wrap(1, 0, 5, "[", "]") // an outer node asks first for its part
	e.wrap(1, 0, 10, "(", ")")
	e.wrap(2, 0, 5, "less(", ")")
	e.replace(2, 3, ",")
	e.wrap(2, 0, 5, "not(", ")")
	if got, want := e.apply(source), "([not(less(a , b))] || c)"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
