// Package silent is a logger for asynq that writes nothing: in a benchmark a conflict may be an error in asynq's eyes.
package silent

// Logger writes nothing.
type Logger struct{}

// Debug does nothing.
func (Logger) Debug(...any) {}

// Info does nothing.
func (Logger) Info(...any) {}

// Warn does nothing.
func (Logger) Warn(...any) {}

// Error does nothing.
func (Logger) Error(...any) {}

// Fatal does nothing.
func (Logger) Fatal(...any) {}
