// Package asynqwire names what asynq stores, and reads it by commands that only read: asynq's own Inspector runs scripts that
// write, which a read-only user of Redis must not.
package asynqwire
