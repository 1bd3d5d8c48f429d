package admin_test

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/inspect/admin"
	"github.com/railtoken/railtoken/middleware"
)

// copies makes archived tasks of one that is in the archive: KEYS are the archive and the task, ARGV are the numbers of the first and the last.
const copies = `
local fields = redis.call('HGETALL', KEYS[2])
for n = ARGV[1], ARGV[2] do
	redis.call('HSET', KEYS[2] .. n, unpack(fields))
	redis.call('ZADD', KEYS[1], 1700000000 + n, string.match(KEYS[2], 't:(.*)$') .. n)
end
return 1`

// sent returns how many bytes Redis has sent.
func (r *rig) sent() int64 {
	r.Helper()
	_, rest, _ := strings.Cut(r.client.Info(r.Context(), "stats").Val(), "total_net_output_bytes:")
	n, err := strconv.ParseInt(strings.TrimSpace(strings.SplitN(rest, "\n", 2)[0]), 10, 64)
	if err != nil {
		r.Fatal(err)
	}
	return n
}

func TestDeadLettersAreShownWithoutReadingAllPayloads(t *testing.T) {
	t.Parallel()
	r := newRig(t, admin.Options{Actions: true})
	client, inspector := asynq.NewClientFromRedisClient(r.client), asynq.NewInspectorFromRedisClient(r.client)
	if _, err := client.Enqueue(asynq.NewTask("invoice", make([]byte, 20_000)), asynq.TaskID("x")); err != nil {
		t.Fatal(err)
	}
	if err := inspector.ArchiveTask("default", "x"); err != nil {
		t.Fatal(err)
	}
	r.client.HSet(t.Context(), "asynq:{default}:t:x", "result", `{"key":"order:1","outcome":"`+middleware.Archive.String()+`"}`)
	for n := 1; n < 10_000; n += 303 {
		if err := r.client.Eval(t.Context(), copies, []string{"asynq:{default}:archived", "asynq:{default}:t:x"}, n, n+302).Err(); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{
		"/archived", "/archived?queue=default&page=100", "/replay?queue=default", "/archived?queue=default&because=held",
		"/archived?queue=default&because=other", "/replay?queue=default&key=order%3A1",
	} {
		before, began := r.sent(), time.Now()
		text := r.get(http.StatusOK, path)
		sent := r.sent() - before
		t.Logf("%s: %d kB in %v", path, sent/1000, time.Since(began))
		if !strings.Contains(path, "other") {
			contains(t, path, text, "invoice", "10\u202f000")
		}
		if sent > 5_000_000 {
			t.Errorf("%s has %d bytes read", path, sent)
		}
	}
}
