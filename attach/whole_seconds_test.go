package attach_test

import (
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/attach"
)

func TestAProducerRoundsDurationsUp(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p, err := attach.NewProducer(r.client, attach.ProducerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	opts := []asynq.Option{nil, asynq.Timeout(500 * time.Millisecond), asynq.Retention(1500 * time.Millisecond)}
	for name, enqueue := range map[string]func() (*asynq.TaskInfo, error){
		"EnqueueContext": func() (*asynq.TaskInfo, error) {
			return p.EnqueueContext(t.Context(), asynq.NewTask("audit", nil), opts...)
		},
		"EnqueueInOrder": func() (*asynq.TaskInfo, error) {
			return p.EnqueueInOrder(t.Context(), "k", asynq.NewTask("audit", nil), opts...)
		},
	} {
		info, err := enqueue()
		if err != nil {
			t.Fatal(err)
		}
		if info.Timeout != time.Second || info.Retention != 2*time.Second {
			t.Errorf("%s: the timeout is %v and the retention %v, want 1s and 2s", name, info.Timeout, info.Retention)
		}
	}
}
