package worker

import (
	"fmt"
	"log/slog"
)

// asynqLogger writes the log of asynq to a slog.Logger.
type asynqLogger struct{ log *slog.Logger }

// asynqMessage is the message of asynq's records. asynq logs sentences that contain values, so the message is constant
// and the sentence is an attribute.
const asynqMessage = "asynq"

func (l asynqLogger) Debug(args ...any) { l.log.Debug(asynqMessage, "text", fmt.Sprint(args...)) }
func (l asynqLogger) Info(args ...any)  { l.log.Info(asynqMessage, "text", fmt.Sprint(args...)) }
func (l asynqLogger) Warn(args ...any)  { l.log.Warn(asynqMessage, "text", fmt.Sprint(args...)) }
func (l asynqLogger) Error(args ...any) { l.log.Error(asynqMessage, "text", fmt.Sprint(args...)) }

// Fatal logs an error. asynq expects it to exit the process, but a library leaves that to the program.
func (l asynqLogger) Fatal(args ...any) { l.log.Error(asynqMessage, "text", fmt.Sprint(args...)) }
