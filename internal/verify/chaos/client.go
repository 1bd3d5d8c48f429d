package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"time"
)

const (
	// callers is how many goroutines of a client process take locks.
	callers = 4
	// patience bounds an attempt.
	patience = 3 * time.Second
)

// Keys are those that the clients share.
func Keys(n int) (keys []string) {
	for i := range n {
		keys = append(keys, fmt.Sprintf("key:%d", i))
	}
	return keys
}

// Work takes locks of a subject and works under them until ctx ends, and writes what it has seen.
func (s Subject) Work(ctx context.Context, number int, addrs []string, ledger Ledger, keys []string, out io.Writer) error {
	locks, err := s.open(addrs)
	if err != nil {
		return err
	}
	defer locks.close()
	w := &writer{out: out, number: number}
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			for ctx.Err() == nil {
				w.use(ctx, locks, ledger, keys[rand.IntN(len(keys))])
			}
		})
	}
	all.Wait()
	return nil
}

type writer struct {
	mu     sync.Mutex
	out    io.Writer
	number int
}

func (w *writer) tell(r Record) {
	r.Client = w.number
	line, err := json.Marshal(r)
	if err != nil {
		panic(err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	_, _ = w.out.Write(append(line, '\n'))
}

func now() int64 { return time.Now().UnixNano() }

// use takes a key, makes an update under it, and gives it back.
func (w *writer) use(ctx context.Context, locks locks, ledger Ledger, key string) {
	attempt, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	call := now()
	lease, err := locks.acquire(attempt, key)
	if err != nil {
		return
	}
	token, err := lease.token(attempt)
	until := lease.until()
	if err != nil {
		_ = lease.release(context.WithoutCancel(ctx))
		return
	}
	w.tell(Record{Kind: Begins, Key: key, Token: token, Call: call, Return: now()})
	until = w.update(ctx, lease, ledger, key, token, until)
	w.end(ctx, lease, key, token, until)
}

// update makes an update, and returns until when the lease was seen to last.
func (w *writer) update(ctx context.Context, lease lease, ledger Ledger, key string, token int64, until time.Time) time.Time {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*patience)
	defer cancel()
	revision, err := ledger.Claim(ctx, key, token)
	if err == nil {
		works := time.Duration(rand.ExpFloat64() * float64(20*time.Millisecond))
		if rand.IntN(50) == 0 {
			works = TTL + 500*time.Millisecond // longer than the lease, if it is not renewed
		}
		for end := time.Now().Add(works); time.Now().Before(end) && !lease.over(); {
			time.Sleep(min(50*time.Millisecond, time.Until(end)+1))
			if at := lease.until(); at.After(until) {
				until = at
			}
		}
		// What a program does that looks at its lease only before it works. The ledger is what protects it.
		err = ledger.Commit(ctx, key, token, revision+1)
	}
	switch {
	case err == nil:
		w.tell(Record{Kind: Commits, Key: key, Token: token, Call: now(), Return: now()})
	case errors.Is(err, ErrFenced):
		w.tell(Record{Kind: Refused, Key: key, Token: token, Call: now(), Return: now()})
	}
	return until
}

// end gives the key back. A lease that is over has ended at any time from when it was last seen to last.
func (w *writer) end(ctx context.Context, lease lease, key string, token int64, until time.Time) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	call := min(now(), until.UnixNano())
	end := int64(Never)
	if err := lease.release(ctx); err == nil {
		end = max(now(), call)
	}
	w.tell(Record{Kind: Ends, Key: key, Token: token, Call: call, Return: end})
}
