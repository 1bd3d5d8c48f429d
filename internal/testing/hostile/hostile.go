// Package hostile answers scripts as no Redis does that is sound: it spoils one value of a true reply. Fuzz tests find out whether a
// client bears that.
package hostile

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync"

	"github.com/redis/go-redis/v9"
)

// Replies spoils the replies to scripts, as data says: three bytes for each, then none is spoilt any more. As a hook of a client, it is
// safe for concurrent use.
type Replies struct {
	mu   sync.Mutex
	data []byte
}

// New returns Replies that data describes.
func New(data []byte) *Replies { return &Replies{data: data} }

// Stop has no further reply spoilt.
func (r *Replies) Stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.data = nil
}

// DialHook changes nothing.
func (*Replies) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook spoils the reply to a script.
func (r *Replies) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		r.spoil(cmd)
		if cmd.Err() != nil {
			return cmd.Err()
		}
		return err
	}
}

// ProcessPipelineHook spoils the replies to scripts.
func (r *Replies) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		for _, cmd := range cmds {
			r.spoil(cmd)
		}
		return err
	}
}

// spoil spoils the reply to a command, if it is a script that Redis has carried out.
func (r *Replies) spoil(cmd redis.Cmder) {
	reply, ok := cmd.(interface {
		Val() any
		SetVal(v any)
	})
	if name := cmd.Name(); !ok || name != "evalsha" && name != "eval" || cmd.Err() != nil && !errors.Is(cmd.Err(), redis.Nil) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.data) < 3 {
		return
	}
	how := r.data[:3]
	r.data = r.data[3:]
	if how[0] == 0 { // this one stays
		return
	}
	if how[0] == 1 {
		cmd.SetErr(errReply)
		return
	}
	cmd.SetErr(nil)
	spoilt := Spoil(reply.Val(), int(how[0]), how[1], how[2])
	if spoilt == nil {
		cmd.SetErr(redis.Nil)
	}
	reply.SetVal(spoilt)
}

// Spoil returns a reply in which one value, at this place among all, is another one.
func Spoil(reply any, at int, how, what byte) any {
	n := count(reply)
	return spoilt(reply, at%n, how, what)
}

// count returns how many values a reply has, itself and those in it.
func count(reply any) int {
	n := 1
	list, _ := reply.([]any)
	for _, value := range list {
		n += count(value)
	}
	return n
}

func spoilt(reply any, at int, how, what byte) any {
	list, ok := reply.([]any)
	if at == 0 {
		if ok && how%2 == 0 {
			return resized(list, what)
		}
		return another(reply, how, what)
	}
	list = slices.Clone(list)
	at--
	for i, value := range list {
		if n := count(value); at >= n {
			at -= n
			continue
		}
		list[i] = spoilt(value, at, how, what)
		break
	}
	return list
}

// resized returns a list with one value less or more.
func resized(list []any, what byte) []any {
	if len(list) == 0 {
		return []any{int64(what)}
	}
	at := int(what>>1) % len(list)
	if what%2 == 0 {
		return slices.Delete(slices.Clone(list), at, at+1)
	}
	return slices.Insert(slices.Clone(list), at, list[at])
}

// another returns a value in place of one: of another kind, or beyond its bounds.
func another(value any, how, what byte) any {
	numbers := []int64{0, 1, -1, 2, int64(what), -int64(what), math.MaxInt64, math.MinInt64, math.MaxInt32, 1 << 53}
	texts := []string{"", "0", "1", "-1", " ", "}", "{", "railtoken:waiters:{}", "a\x00b", "9223372036854775808", "asynq:{default}:t:", "1.5", string([]byte{what, 0xff})}
	switch how / 2 % 8 {
	case 0:
		return nil
	case 1:
		return numbers[int(what)%len(numbers)]
	case 2:
		return texts[int(what)%len(texts)]
	case 3:
		return []any{}
	case 4:
		return []any{value, value}
	case 5:
		return []any{nil}
	case 6:
		return what%2 == 0
	}
	if number, ok := value.(int64); ok {
		return number + int64(int8(what)) //nolint:gosec // it may be negative
	}
	if text, ok := value.(string); ok && text != "" {
		at := int(what) % len(text)
		return text[:at] + text[at+1:]
	}
	return float64(what) / 3
}

// errReply is an error reply.
var errReply = replyError("ERR hostile")

type replyError string

func (e replyError) Error() string { return string(e) }

// RedisError marks it as a [redis.Error].
func (replyError) RedisError() {}
