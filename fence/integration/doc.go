// Package integration tests package fence against real databases. It is a module of its own, so that their drivers do
// not reach users of fence.
package integration
