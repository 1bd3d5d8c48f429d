// Package e2e has no code: its tests run whole workers, in processes of their own where they are to be killed, against real
// Redis servers, and break what can break.
package e2e
