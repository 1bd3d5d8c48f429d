// Package doctor finds what is wrong with a running system of locks and tasks before it costs tasks or time. [Examine]
// gathers facts from every Redis and from the workers' reports, and checks them.
//
// It changes nothing, with one exception: the checks of writes and of ACL rules try commands on keys of their own, as a
// worker does when it starts, and delete the keys.
//
// Facts are gathered by thin functions (gather*.go). Each check is a pure function of them (check*.go).
package doctor
