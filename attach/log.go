package attach

import (
	"cmp"
	"context"
	"log/slog"
	"strings"

	"github.com/hibiken/asynq"
)

// loggerOf returns a logger that writes to the Logger of an asynq configuration, or slog.Default if there is none.
func loggerOf(cfg asynq.Config) *slog.Logger {
	if cfg.Logger == nil {
		return slog.Default()
	}
	// The levels of slog are 4 apart, and those of asynq 1.
	level := slog.Level(cmp.Or(cfg.LogLevel, asynq.InfoLevel)-asynq.InfoLevel) * slog.LevelWarn
	return slog.New(asynqHandler{cfg.Logger, level, func(h slog.Handler) slog.Handler { return h }})
}

// asynqHandler writes records as text to an asynq Logger, with the attributes and groups that were added.
type asynqHandler struct {
	log   asynq.Logger
	level slog.Level
	with  func(slog.Handler) slog.Handler
}

func (h asynqHandler) Enabled(_ context.Context, level slog.Level) bool { return level >= h.level }

func (h asynqHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return asynqHandler{h.log, h.level, func(text slog.Handler) slog.Handler { return h.with(text).WithAttrs(attrs) }}
}

func (h asynqHandler) WithGroup(name string) slog.Handler {
	return asynqHandler{h.log, h.level, func(text slog.Handler) slog.Handler { return h.with(text).WithGroup(name) }}
}

func (h asynqHandler) Handle(ctx context.Context, r slog.Record) error {
	var b strings.Builder
	text := slog.NewTextHandler(&b,
		&slog.HandlerOptions{Level: h.level, ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
			if len(groups) == 0 && (a.Key == slog.TimeKey || a.Key == slog.LevelKey) {
				return slog.Attr{} // asynq's Logger writes its own
			}
			return a
		}})
	if err := h.with(text).Handle(ctx, r); err != nil {
		return err
	}
	write := h.log.Debug
	switch {
	case r.Level >= slog.LevelError:
		write = h.log.Error
	case r.Level >= slog.LevelWarn:
		write = h.log.Warn
	case r.Level >= slog.LevelInfo:
		write = h.log.Info
	}
	write("railtoken: " + strings.TrimSuffix(b.String(), "\n"))
	return nil
}
