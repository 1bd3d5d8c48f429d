package contestant

import (
	"context"
	"crypto/rand"
	"errors"

	"github.com/redis/go-redis/v9"
)

var (
	errTaken   = errors.New("the key is taken")
	errGone    = errors.New("the key was no longer held at the release")
	errOverlap = errors.New("holds OVERLAPPED")
)

const compareAndDeleteScript = `
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
	return 0
end
return redis.call('DEL', KEYS[1])`

var compareAndDelete = redis.NewScript(compareAndDeleteScript)

// Floor is what the canonical pattern costs with the bare client: SET NX PX with a random value, and a script that
// deletes the key when it still has that value. It has no fencing token, no renewal and no way to wait.
var Floor = pooling(NameFloor, func(addrs []string, connections int) (*Locker, error) {
	client := redis.NewClient(options(addrs[0], connections))
	pair := func(ctx context.Context, key string) error {
		value := rand.Text()
		err := client.SetArgs(ctx, key, value, redis.SetArgs{Mode: "NX", TTL: TTL}).Err()
		if errors.Is(err, redis.Nil) {
			return errTaken
		}
		if err != nil {
			return err
		}
		deleted, err := compareAndDelete.Run(ctx, client, []string{key}, value).Int()
		if err == nil && deleted == 0 {
			return errGone
		}
		return err
	}
	return &Locker{Pair: pair, Do: doesNotWait, Close: client.Close}, nil
})
