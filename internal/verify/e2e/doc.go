// Package e2e has no code: its tests run whole workers against real Redis servers and make things fail. A worker that a
// test kills runs in a process of its own.
package e2e
