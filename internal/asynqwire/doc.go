// Package asynqwire reads what asynq stores, by commands that only read: asynq's own Inspector runs scripts that write, which a
// read-only user of Redis must not.
package asynqwire
