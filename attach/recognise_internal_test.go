package attach

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/railtoken/railtoken/internal/broker"
)

func TestAnUnknownAsynqIsRefusedUnlessAllowed(t *testing.T) {
	t.Parallel()
	unknown := func() error { return broker.ErrAsynq }
	var log bytes.Buffer
	opts := Options{Logger: slog.New(slog.NewTextHandler(&log, nil))}
	err := opts.recognise(unknown)
	if !errors.Is(err, broker.ErrAsynq) || !strings.Contains(err.Error(), "use asynq v0.26.0") ||
		!strings.Contains(err.Error(), "AllowUnknownAsynq") || log.Len() > 0 {
		t.Errorf("the error is %v, and the log %q", err, log.String())
	}
	slow := func() error { return errors.New("cannot tell") }
	if err := opts.recognise(slow); err == nil || !strings.Contains(err.Error(), "try again") {
		t.Errorf("when it is not known, the error is %v", err)
	}
	opts.AllowUnknownAsynq = true
	if err := opts.recognise(unknown); err != nil || !strings.Contains(log.String(), "level=WARN") {
		t.Errorf("when it is allowed, the error is %v, and the log %q", err, log.String())
	}
}
