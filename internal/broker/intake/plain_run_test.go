package intake_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/broker/intake"
	"github.com/railtoken/railtoken/internal/testing/redistest"
)

// A call that has no answer for so long that asynq's lease ends: another server, on asynq's own client, runs the task
// when the call is made again.
func TestACallThatComesLateLeavesAPlainRunAlone(t *testing.T) {
	t.Parallel()
	for name, begin := range map[string]func(t *testing.T, in *intake.Intake, network *outage){
		"a recall": func(t *testing.T, in *intake.Intake, network *outage) {
			t.Helper()
			network.loseAReply()
			if _, err := in.Fetch(t.Context(), "default"); err == nil {
				t.Fatal("the reply was not lost")
			}
		},
		"a give-back": func(t *testing.T, in *intake.Intake, network *outage) {
			t.Helper()
			if _, err := in.Fetch(t.Context(), "default"); err != nil {
				t.Fatal(err)
			}
			network.cut() // before the task has been in memory for too long
		},
		"a repeated acknowledgement": func(t *testing.T, in *intake.Intake, network *outage) {
			t.Helper()
			if _, err := in.Fetch(t.Context(), "default"); err != nil {
				t.Fatal(err)
			}
			if _, ok := in.Take(); !ok {
				t.Fatal("no task came")
			}
			network.cut()
			if ok, err := in.Acknowledge(t.Context(), intake.Acknowledgement{
				Queue: "default", ID: "default0", Text: doneText,
				Keys: []string{"asynq:{default}:t:default0", "asynq:{default}:active"}, Args: []any{"default0"},
			}); !ok || err != nil {
				t.Fatal(ok, err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			admin, client := server.Client(t), server.Client(t)
			ctx := t.Context()
			enqueue(t, admin, "default", 1)
			network := newOutage()
			client.AddHook(redistest.Hook(network.call))
			stopping := make(chan struct{})
			close(stopping) // no fetch goes with the acknowledgement
			in := intake.New(client, intake.Options{Slots: 1, Stopping: stopping})
			begin(t, in, network)
			redistest.Receive(t, network.failed, patience) // at least one call was made in vain

			// asynq recovers the task once its lease has ended for 30 s.
			admin.ZAdd(ctx, "asynq:{default}:lease", redis.Z{Score: 1, Member: "default0"})
			begun, end := make(chan struct{}, 8), make(chan struct{})
			plain := asynq.NewServerFromRedisClient(server.Client(t), asynq.Config{
				LogLevel: asynq.FatalLevel, TaskCheckInterval: 10 * time.Millisecond, DelayedTaskCheckInterval: 50 * time.Millisecond,
				RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return 0 },
			})
			if err := plain.Start(asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
				begun <- struct{}{}
				<-end
				return nil
			})); err != nil {
				t.Fatal(err)
			}
			defer plain.Shutdown()
			defer close(end)
			redistest.Receive(t, begun, patience)
			network.mend()
			redistest.Receive(t, network.answered, patience)
			if task, ok := in.Take(); ok {
				t.Errorf("%s was delivered while another server runs it", task.ID)
			}
			active, pending := admin.LRange(ctx, "asynq:{default}:active", 0, -1).Val(), admin.LLen(ctx, "asynq:{default}:pending").Val()
			if !slices.Equal(active, []string{"default0"}) || pending != 0 || len(begun) > 0 {
				t.Errorf("active are %v, and %d are pending, while a server runs the task", active, pending)
			}
		})
	}
}

// outage is a network that fails.
type outage struct {
	state            atomic.Int64
	failed, answered chan struct{} // have a value after a script that failed, and after one that was answered since
}

// States of an outage.
const (
	fine     = iota
	losesOne // the next reply is lost, and then it is cut
	isCut
	mended
)

func newOutage() *outage {
	return &outage{failed: make(chan struct{}, 1), answered: make(chan struct{}, 1)}
}

func (o *outage) loseAReply() { o.state.Store(losesOne) }
func (o *outage) cut()        { o.state.Store(isCut) }
func (o *outage) mend()       { o.state.Store(mended) }

// loseAFetch has the Intake fetch, and loses the reply.
func (o *outage) loseAFetch(t *testing.T, in *intake.Intake) {
	t.Helper()
	o.loseAReply()
	if _, err := in.Fetch(t.Context(), "default"); err == nil {
		t.Fatal("the reply was not lost")
	}
	o.mend()
}

// call makes a call of a script over the network.
func (o *outage) call(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
	if !strings.HasPrefix(cmd.Name(), "eval") {
		return next(ctx, cmd)
	}
	state := o.state.Load()
	if state != isCut {
		if err := next(ctx, cmd); state == fine || redis.HasErrorPrefix(err, "NOSCRIPT") {
			return err
		} else if state == mended {
			signal(o.answered)
			return err
		}
		o.cut()
	}
	signal(o.failed)
	return redistest.Fail(cmd, errors.New("connection reset by peer"))
}

func signal(to chan struct{}) {
	select {
	case to <- struct{}{}:
	default:
	}
}
