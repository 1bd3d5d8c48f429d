package lanes

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// Record is the Redis key with the number of lanes of a Redis Cluster, 0 if there are none. Who comes first writes it.
const Record = "railtoken:lanes"

// ErrOther reports that other processes have another number of lanes: the locks of the two would not exclude each other.
var ErrOther = errors.New("this Redis Cluster has another number of lanes")

// An Agreement is whether a process has the number of lanes that all others have on a Redis Cluster. It is safe for concurrent use.
type Agreement struct {
	client  redis.UniversalClient
	n       int
	reached atomic.Bool
}

// AgreementOn returns that on the lanes on the Redis of a client. On one Redis, where no process has lanes, all agree.
func AgreementOn(client redis.UniversalClient, l Lanes) *Agreement {
	a := &Agreement{client: client, n: l.n}
	_, cluster := client.(*redis.ClusterClient)
	a.reached.Store(!cluster)
	return a
}

// recordScript writes the record unless there is one, and returns it. A script is for masters: a replica may be behind.
var recordScript = redis.NewScript("redis.call('SET', KEYS[1], ARGV[1], 'NX') return redis.call('GET', KEYS[1])")

// patience is how long Redis may take to answer.
const patience = 2 * time.Second

// Reach returns an error that matches [ErrOther] if other processes have another number of lanes, or that of ctx once that has ended. On a
// Redis Cluster it makes a call or two, and none once it has returned nil.
func (a *Agreement) Reach(ctx context.Context) error {
	if a.reached.Load() {
		return nil
	}
	answered := make(chan error, 1)
	go func() { // a client may not end with the context
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
		defer cancel()
		answered <- a.compare(ctx)
	}()
	select {
	case err := <-answered:
		return err
	case <-ctx.Done():
		return fmt.Errorf("compare the number of lanes: %w", context.Cause(ctx))
	}
}

// Introduce does what Reach does where there were no lanes so far: from now on there are, and no process may work without.
func (a *Agreement) Introduce(ctx context.Context) error {
	recorded, err := Recorded(ctx, a.client)
	if err == nil && recorded == 0 {
		err = a.client.Set(ctx, Record, a.n, 0).Err()
	}
	if err != nil {
		return fmt.Errorf("introduce lanes: %w", err)
	}
	return a.Reach(ctx)
}

// Recorded returns the number of lanes on the Redis of a client, 0 if there are none, or nobody has come yet.
func Recorded(ctx context.Context, client redis.UniversalClient) (int, error) {
	if _, cluster := client.(*redis.ClusterClient); !cluster {
		return 0, nil
	}
	text, err := client.Get(ctx, Record).Result()
	if errors.Is(err, redis.Nil) {
		return 0, nil
	} else if err != nil {
		return 0, fmt.Errorf("read the number of lanes: %w", err)
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0, fmt.Errorf("the key %s has %q, which is no number of lanes", Record, text)
	}
	return n, nil
}

func (a *Agreement) compare(ctx context.Context) error {
	recorded, err := recordScript.Run(ctx, a.client, []string{Record}, a.n).Text()
	switch {
	case err != nil:
		return fmt.Errorf("compare the number of lanes: %w", err)
	case recorded != strconv.Itoa(a.n):
		change := "let no task be left in a lane, and delete the key"
		if recorded == "0" {
			change = fmt.Sprintf("and run railtoken lanes move --lanes %d", a.n)
		}
		return fmt.Errorf("%w: Lanes is %d here, and the key %s has %s: give all processes Lanes = %s (RAILTOKEN_LANES); to change the "+
			"number, stop all of them, %s", ErrOther, a.n, Record, recorded, recorded, change)
	}
	a.reached.Store(true)
	return nil
}
