package tasks

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Meeting is two holders of a key at once. Came is when the first of them came, and Left when it left and still believed in its lease.
type Meeting struct {
	Run, Other Run // of the other one the name, if it has not left
	Came, Left time.Time
}

// MarshalBinary returns what the ledger keeps.
func (m Meeting) MarshalBinary() ([]byte, error) { return json.Marshal(m) }

// Effect is one that the ledger has accepted.
type Effect struct {
	Task  int
	Token int64
}

// Books are what the ledger has kept.
type Books struct {
	Effects   map[string][]Effect // of each key, in their order
	Revisions map[string]int
	Runs      map[int]int // of each task
	Meetings  []Meeting
	// Succeeded is how many runs have ended with success, Repeats how many of those found the effect there, and Refused how many steps
	// the ledger has refused.
	Succeeded, Repeats, Refused int
}

// Read reads the books.
func (l Ledger) Read(ctx context.Context, all []Task) (Books, error) {
	b := Books{Effects: map[string][]Effect{}, Revisions: map[string]int{}, Runs: map[int]int{}}
	var failed error
	number := func(s string) int {
		n, err := strconv.Atoi(s)
		failed = errors.Join(failed, err)
		return n
	}
	for _, t := range all {
		if _, read := b.Effects[t.Key]; read {
			continue
		}
		revision, err := l.Redis.Get(ctx, "revision:"+t.Key).Int()
		if err != nil && !errors.Is(err, redis.Nil) {
			return b, err
		}
		b.Revisions[t.Key] = revision
		log, err := l.Redis.LRange(ctx, logName(t.Key), 0, -1).Result()
		if err != nil {
			return b, err
		}
		b.Effects[t.Key] = []Effect{}
		for _, entry := range log {
			e, err := parseEffect(entry)
			failed = errors.Join(failed, err)
			b.Effects[t.Key] = append(b.Effects[t.Key], e)
		}
	}
	runs, err := l.Redis.HGetAll(ctx, runsName).Result()
	failed = errors.Join(failed, err)
	for task, n := range runs {
		b.Runs[number(task)] = number(n)
	}
	counts, err := l.Redis.HGetAll(ctx, countsName).Result()
	failed = errors.Join(failed, err)
	for name, to := range map[string]*int{"succeeded": &b.Succeeded, "repeats": &b.Repeats, "refused": &b.Refused} {
		if counts[name] != "" {
			*to = number(counts[name])
		}
	}
	meetings, err := l.Redis.LRange(ctx, meetingsName, 0, -1).Result()
	failed = errors.Join(failed, err)
	for _, entry := range meetings {
		var m Meeting
		failed = errors.Join(failed, json.Unmarshal([]byte(entry), &m))
		b.Meetings = append(b.Meetings, m)
	}
	return b, failed
}

// parseEffect reads "task token".
func parseEffect(entry string) (e Effect, err error) {
	task, token, _ := strings.Cut(entry, " ")
	if e.Task, err = strconv.Atoi(task); err != nil {
		return e, err
	}
	e.Token, err = strconv.ParseInt(token, 10, 64)
	return e, err
}
