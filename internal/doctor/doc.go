// Package doctor finds what is wrong with a running system of locks and tasks before it costs tasks or time. [Examine]
// gathers facts from every Redis and from the workers' reports, and checks them.
//
// It changes nothing, with one exception: the check of ACL rules tries commands on a key of its own, as a worker does
// when it starts, and deletes the key.
//
// Facts are gathered by thin functions (gather*.go). Each check is a pure function of them (check*.go).
package doctor
