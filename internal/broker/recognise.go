package broker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Versions are the versions of asynq that railtoken compiles with and whose scripts a [Conn] recognises.
const Versions = "v0.26.0"

// ErrAsynq reports that the asynq of this program does not manage its tasks with the scripts that a [Conn] recognises.
var ErrAsynq = errors.New("asynq's scripts are not those of " + Versions)

// Recognise returns nil if the asynq of this program uses the scripts that a [Conn] recognises. Otherwise, for another
// version or a fork, the error matches [ErrAsynq]. Recognise has asynq enqueue, run and
// acknowledge tasks of every kind on a Redis that exists only in memory, which takes some milliseconds. The verdict is
// kept. Any other error says that asynq did not come to an end within 30 s: then the next call looks again.
func Recognise() error {
	return recognised.of(func() error {
		return recognise(func(client redis.UniversalClient) redis.UniversalClient { return client })
	})
}

var recognised verdict

// verdict keeps what has been found out. It is safe for concurrent use.
type verdict struct {
	mu   sync.Mutex
	sure bool
	err  error
}

// of returns the verdict, and looks for it unless it is known.
func (v *verdict) of(look func() error) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.sure {
		v.err = look()
		v.sure = v.err == nil || errors.Is(v.err, ErrAsynq)
	}
	return v.err
}

// recogniseLimit bounds the wait for asynq, which a busy machine may slow down.
const recogniseLimit = 30 * time.Second

// recognise does what [Recognise] does, with asynq on the client that wrap returns, and keeps nothing.
func recognise(wrap func(redis.UniversalClient) redis.UniversalClient) error {
	d := &dummy{seen: map[string]bool{}, acknowledged: make(chan struct{}, len(probes)+1)}
	bare := redis.NewClient(&redis.Options{
		Addr:       "127.0.0.1:6379", // nothing is dialed, nor is a name looked up
		MaxRetries: -1, MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		Dialer: func(context.Context, string, string) (net.Conn, error) { return nil, errDummy },
	})
	defer func() { _ = bare.Close() }()
	bare.AddHook(d)
	client := wrap(bare)
	err := enqueueProbes(client)
	if err == nil {
		err = runProbes(client, d)
	}
	return d.verdict(err)
}

// probes are tasks, by the script that ends their runs.
var probes = map[string][]asynq.Option{
	"done": nil, "doneUnique": {asynq.Unique(time.Minute)},
	"markAsComplete": {asynq.Retention(time.Hour)}, "markAsCompleteUnique": {asynq.Retention(time.Hour), asynq.Unique(time.Minute)},
	"retry": {asynq.MaxRetry(1)}, "archive": {asynq.MaxRetry(0)}, "requeue": nil,
}

// enqueueProbes enqueues the probes, and other tasks in every other way.
func enqueueProbes(client redis.UniversalClient) error {
	tasks := asynq.NewClientFromRedisClient(client)
	enqueue := func(kind string, opts ...asynq.Option) error {
		_, err := tasks.Enqueue(asynq.NewTask(kind, nil), append(opts, asynq.TaskID(kind))...)
		return err
	}
	var errs []error
	for kind, opts := range probes {
		errs = append(errs, enqueue(kind, opts...))
	}
	for _, later := range []asynq.Option{asynq.ProcessIn(time.Hour), asynq.Group("group")} {
		errs = append(errs, enqueue(notNow, later), enqueue(notNow, later, asynq.Unique(time.Minute)))
	}
	return errors.Join(errs...)
}

// notNow is the type of tasks that are not to run.
const notNow = "later"

// runProbes has a server of asynq run the probes and shut down.
func runProbes(client redis.UniversalClient, d *dummy) error {
	server := asynq.NewServerFromRedisClient(client, asynq.Config{
		Concurrency: len(probes), TaskCheckInterval: time.Millisecond, ShutdownTimeout: time.Millisecond,
		Logger: silent{}, LogLevel: asynq.FatalLevel,
	})
	began := make(chan struct{})
	if err := server.Start(asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
		switch task.Type() {
		case "retry", "archive":
			return errDummy
		case "requeue":
			close(began)
			<-ctx.Done()
		}
		return nil
	})); err != nil {
		return err
	}
	defer server.Shutdown() // which puts the last one back
	late := time.NewTimer(recogniseLimit)
	defer late.Stop()
	for range len(probes) - 1 {
		select {
		case <-d.acknowledged:
		case <-late.C:
			return errSlow
		}
	}
	select {
	case <-began:
		return nil
	case <-late.C:
		return errSlow
	}
}

var (
	errDummy = errors.New("there is no Redis")
	errSlow  = fmt.Errorf("some tasks have not run and ended within %v", recogniseLimit)
)

// silent logs nothing.
type silent struct{}

func (silent) Debug(...any) {}
func (silent) Info(...any)  {}
func (silent) Warn(...any)  {}
func (silent) Error(...any) {}
func (silent) Fatal(...any) {}

// dummy stands for a Redis that has the probes to run and forgets everything else. It is safe for concurrent use.
type dummy struct {
	mu           sync.Mutex
	seen         map[string]bool // scripts that are known, by their names
	other        bool            // one was sent that is not
	pending      []string        // messages
	acknowledged chan struct{}   // has a value for each run that has ended
}

// DialHook changes nothing.
func (*dummy) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessPipelineHook answers nothing: asynq pipelines no command.
func (*dummy) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(context.Context, []redis.Cmder) error { return errDummy }
}

// ProcessHook answers commands.
func (d *dummy) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(_ context.Context, cmd redis.Cmder) error {
		switch cmd := cmd.(type) {
		case *redis.Cmd:
			value, err := d.script(cmd.Args())
			if err != nil {
				cmd.SetErr(err)
				return err
			}
			cmd.SetVal(value)
		case *redis.IntCmd:
			cmd.SetVal(1)
		case *redis.StatusCmd:
			cmd.SetVal("OK")
		case *redis.StringSliceCmd:
		default:
			cmd.SetErr(redis.Nil)
			return redis.Nil
		}
		return nil
	}
}

// script answers a script. One that is not known is answered by what its keys say of it.
func (d *dummy) script(args []any) (any, error) {
	name, keys, values := calledWith(args)
	d.mu.Lock()
	defer d.mu.Unlock()
	kind, known := KindOf(name, keys)
	if _, kept := texts.Load(name); known && kind == Ack && !kept {
		if sent, _ := args[0].(string); !strings.EqualFold(sent, "eval") {
			return nil, noScriptError{} // the text comes next, and is at hand from then on
		}
		text, _ := args[1].(string)
		texts.Store(name, text)
	}
	if known {
		d.seen[scripts[name]] = true
	}
	d.other = d.other || !known && kind != Other
	switch kind {
	case Fetch:
		if len(d.pending) == 0 {
			return nil, redis.Nil
		}
		message := d.pending[0]
		d.pending = d.pending[1:]
		return message, nil
	case Ack:
		select {
		case d.acknowledged <- struct{}{}:
		default:
		}
		return "OK", nil
	case Recover:
		return []any{}, nil
	case Enqueue:
		for _, value := range values { // the message is the only one in bytes
			if message, ok := value.([]byte); ok && !strings.Contains(string(message), notNow) {
				d.pending = append(d.pending, string(message))
			}
		}
		return int64(1), nil
	}
	return int64(0), nil // nothing is left to do
}

// calledWith returns the SHA-1 of a script in a command, and what it is called with.
func calledWith(args []any) (sum string, keys []string, values []any) {
	if len(args) < 3 {
		return "", nil, nil
	}
	sum, _ = args[1].(string)
	if name, _ := args[0].(string); strings.EqualFold(name, "eval") {
		sum = sumOf(sum)
	}
	n, _ := args[2].(int)
	for _, key := range args[3:min(3+n, len(args))] {
		text, _ := key.(string)
		keys = append(keys, text)
	}
	return sum, keys, args[min(3+n, len(args)):]
}

// verdict returns the error for scripts that asynq has not sent, and nil if there is none. why is what kept it from the
// end of its work. If that was the time, only a script that is not known tells something about asynq.
func (d *dummy) verdict(why error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	var missing []string
	for _, name := range slices.Sorted(maps.Keys(kinds)) {
		if !d.seen[name] {
			missing = append(missing, name)
		}
	}
	switch {
	case len(missing) == 0 && why == nil:
		return nil
	case len(missing) == 0, errors.Is(why, errSlow) && !d.other:
		return fmt.Errorf("cannot tell whether the scripts of %s are known: %w", ofProgram(), why)
	}
	return fmt.Errorf("%w: %s differ in %s", ErrAsynq, strings.Join(missing, ", "), ofProgram())
}

// ofProgram returns the asynq that this program was built with, as far as that is known.
func ofProgram() string {
	const path = "github.com/hibiken/asynq"
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			switch {
			case m.Path != path:
			case m.Replace != nil:
				return strings.TrimSpace(path + " " + m.Version + " => " + m.Replace.Path + " " + m.Replace.Version)
			default:
				return path + " " + m.Version
			}
		}
	}
	return "the asynq of this program"
}
