package attach

import (
	"bytes"
	"regexp"
	"testing"
)

func TestTheDefaultLogReadsLikeAsynqs(t *testing.T) {
	t.Parallel()
	var got bytes.Buffer
	log := newPlainLog(&got)
	log.Debug("1")
	log.Info("2")
	log.Warn("3 ", 4)
	log.Error("5")
	begin := `asynq: pid=\d+ \d{4}/\d\d/\d\d \d\d:\d\d:\d\d\.\d{6} `
	want := "^" + begin + "DEBUG: 1\n" + begin + "INFO: 2\n" + begin + "WARN: 3 4\n" + begin + "ERROR: 5\n$"
	if !regexp.MustCompile(want).MatchString(got.String()) {
		t.Errorf("%q", &got)
	}
}
