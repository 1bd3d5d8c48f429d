package worker

import (
	"fmt"
	"log/slog"
)

// asynqLogger gives asynq's log to slog.
type asynqLogger struct{ log *slog.Logger }

// asynq writes a sentence, with values in it; the message stays constant and the sentence is an attribute.
const asynqMessage = "asynq"

func (l asynqLogger) Debug(args ...any) { l.log.Debug(asynqMessage, "text", fmt.Sprint(args...)) }
func (l asynqLogger) Info(args ...any)  { l.log.Info(asynqMessage, "text", fmt.Sprint(args...)) }
func (l asynqLogger) Warn(args ...any)  { l.log.Warn(asynqMessage, "text", fmt.Sprint(args...)) }
func (l asynqLogger) Error(args ...any) { l.log.Error(asynqMessage, "text", fmt.Sprint(args...)) }

// Fatal logs an error. asynq wants the process to end here; a library leaves that to its user.
func (l asynqLogger) Fatal(args ...any) { l.log.Error(asynqMessage, "text", fmt.Sprint(args...)) }
