package asynqwire_test

import (
	"testing"

	"github.com/railtoken/railtoken/internal/asynqwire"
)

func TestNamesAreReadAsTheyAreWritten(t *testing.T) {
	t.Parallel()
	if queue, id, ok := asynqwire.TaskAt(asynqwire.Hash("mail", "a:b")); queue != "mail" || id != "a:b" || !ok {
		t.Errorf("the task is %q in %q, %v", id, queue, ok)
	}
	if queue, ok := asynqwire.QueueOf(asynqwire.Lease("mail"), "lease"); queue != "mail" || !ok {
		t.Errorf("the queue is %q, %v", queue, ok)
	}
	for _, key := range []string{asynqwire.Hash("mail", ""), asynqwire.Pending("mail"), asynqwire.Queues, "{mail}:t:a"} {
		if queue, id, ok := asynqwire.TaskAt(key); ok {
			t.Errorf("%s is the task %q of %q", key, id, queue)
		}
	}
	if queue, ok := asynqwire.QueueOf(asynqwire.Pending("mail"), "lease"); ok {
		t.Errorf("the leases of %q", queue)
	}
}
