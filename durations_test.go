package railtoken_test

import (
	"context"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/attach"
	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/inspect"
	"github.com/railtoken/railtoken/items"
	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/middleware"
	"github.com/railtoken/railtoken/worker"
)

// configured are the structs with durations that users configure, each with what accepts or refuses it.
var configured = map[string]func(t *testing.T, o any) error{
	"locking.Options": func(_ *testing.T, o any) error { return o.(locking.Options).Validate() },
	"locking.SingleOptions": func(t *testing.T, o any) error {
		_, err := locking.NewSingle(offline(t), o.(locking.SingleOptions))
		return err
	},
	"locking.RedlockOptions": func(_ *testing.T, o any) error {
		_, err := locking.NewRedlock(
			[]*redis.Options{{Addr: "localhost:1"}, {Addr: "localhost:2"}, {Addr: "localhost:3"}}, o.(locking.RedlockOptions))
		return err
	},
	"middleware.Wait": func(t *testing.T, o any) error { return attached(t, attach.Options{Strategy: o.(middleware.Wait)}) },
	"middleware.Supersede": func(t *testing.T, o any) error {
		return attached(t, attach.Options{Strategy: o.(middleware.Supersede)})
	},
	"middleware.Requeue": func(t *testing.T, o any) error {
		return attached(t, attach.Options{Strategy: o.(middleware.Requeue)})
	},
	"middleware.Options": func(t *testing.T, o any) error {
		opts := o.(middleware.Options)
		l, err := locking.NewSingle(offline(t), locking.SingleOptions{})
		if err != nil {
			return err
		}
		opts.Locker, opts.Key, opts.Strategy = l, middleware.FixedKey("k"), middleware.FailFast{}
		_, err = middleware.Lock(opts)
		return err
	},
	"attach.Options":  func(t *testing.T, o any) error { return attached(t, o.(attach.Options)) },
	"attach.Recovery": func(_ *testing.T, o any) error { return o.(attach.Recovery).Validate() },
	"attach.Latest":   func(_ *testing.T, o any) error { return o.(attach.Latest).Validate() },
	"attach.LockOptions": func(t *testing.T, o any) error {
		a, err := attach.New(offline(t), asynq.Config{}, attach.Options{})
		if err != nil {
			t.Fatal(err)
		}
		opts := o.(attach.LockOptions)
		opts.Key = middleware.FixedKey("k")
		_, err = a.LockWith(opts)
		return errors.Join(err, a.Close())
	},
	"worker.Config": func(_ *testing.T, o any) error {
		c := o.(worker.Config)
		c.Redis.Addr = "localhost:1"
		return c.Validate()
	},
	"worker.Handler": func(t *testing.T, o any) error {
		w, err := worker.New(worker.Config{Redis: worker.Redis{Addr: "localhost:1"}})
		if err != nil {
			t.Fatal(err)
		}
		h := o.(worker.Handler[int])
		h.Run, h.Keys = func(context.Context, int) error { return nil }, func(int) []string { return []string{"k"} }
		return worker.Handle(w, "type", h)
	},
	"items.Handler": func(t *testing.T, o any) error {
		a, err := attach.New(offline(t), asynq.Config{}, attach.Options{})
		if err != nil {
			t.Fatal(err)
		}
		h := o.(items.Handler[int, int])
		h.Split = func(int) []int { return nil }
		h.ItemKeys, h.Run = func(int) []string { return nil }, func(context.Context, int) error { return nil }
		_, err = items.New(a, h)
		return errors.Join(err, a.Close())
	},
	"delayqueue.Limits": func(t *testing.T, o any) error {
		return attached(t, attach.Options{Strategy: middleware.Requeue{Limits: o.(delayqueue.Limits)}})
	},
	"delayqueue.ParkOptions": func(t *testing.T, o any) error {
		q, err := delayqueue.New(offline(t), delayqueue.Options{})
		if err != nil {
			t.Fatal(err)
		}
		err = q.Park(t.Context(), "k", o.(delayqueue.ParkOptions))
		if err != nil && strings.Contains(err.Error(), "asynq") { // it was asked outside of a handler
			err = nil
		}
		return errors.Join(err, q.Close())
	},
	"inspect.Options": func(t *testing.T, o any) error {
		opts := o.(inspect.Options)
		opts.Tasks, opts.Nodes = offline(t), []*redis.Options{{Addr: "localhost:1"}, {Addr: "localhost:2"}, {Addr: "localhost:3"}}
		i, err := inspect.New(opts)
		if err != nil {
			return err
		}
		return i.Close()
	},
}

// empty are the zero values of these structs.
var empty = map[string]any{
	"locking.Options": locking.Options{}, "locking.SingleOptions": locking.SingleOptions{},
	"locking.RedlockOptions": locking.RedlockOptions{}, "middleware.Wait": middleware.Wait{},
	"middleware.Requeue": middleware.Requeue{}, "middleware.Supersede": middleware.Supersede{}, "middleware.Options": middleware.Options{},
	"attach.Options": attach.Options{}, "attach.LockOptions": attach.LockOptions{}, "attach.Recovery": attach.Recovery{}, "attach.Latest": attach.Latest{}, "worker.Config": worker.Config{},
	"worker.Handler": worker.Handler[int]{}, "items.Handler": items.Handler[int, int]{},
	"delayqueue.Limits": delayqueue.Limits{}, "delayqueue.ParkOptions": delayqueue.ParkOptions{},
	"inspect.Options": inspect.Options{},
}

// reported are the structs whose durations the library sets.
var reported = map[string]bool{
	"locking.Holder": true, "middleware.Event": true, "middleware.Conflict": true, "middleware.Decision": true,
	"middleware.ConflictError": true, "items.Result": true, "inspect.ServerLock": true, "inspect.Node": true, "inspect.Holder": true,
}

func offline(t *testing.T) redis.UniversalClient {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: "localhost:1", MaxRetries: -1})
	t.Cleanup(func() { client.Close() })
	return client
}

func attached(t *testing.T, o attach.Options) error {
	t.Helper()
	a, err := attach.New(offline(t), asynq.Config{}, o)
	if err != nil {
		return err
	}
	return a.Close()
}

var durationType = reflect.TypeFor[time.Duration]()

// durationFields returns the paths to the durations of a struct.
func durationFields(of reflect.Type) (paths [][]int) {
	for i := range of.NumField() {
		f := of.Field(i)
		switch {
		case !f.IsExported():
		case f.Type == durationType:
			paths = append(paths, []int{i})
		case f.Type.Kind() == reflect.Struct && strings.HasPrefix(f.Type.PkgPath(), "github.com/railtoken/"):
			for _, inner := range durationFields(f.Type) {
				paths = append(paths, append([]int{i}, inner...))
			}
		}
	}
	return paths
}

const years = 365 * 24 * time.Hour

func TestDurationsOutOfRangeAreRefusedByName(t *testing.T) {
	t.Parallel()
	for name, accept := range configured {
		zero := reflect.TypeOf(empty[name])
		paths := durationFields(zero)
		if len(paths) == 0 {
			t.Errorf("%s has no durations", name)
		}
		for _, path := range paths {
			field := zero.FieldByIndex(path).Name
			for d, fits := range map[time.Duration]bool{
				0: true, -1: false, math.MinInt64: false, math.MaxInt64: false, 201 * years: false,
				1: false, time.Millisecond - 1: false,
			} {
				o := reflect.New(zero).Elem()
				o.FieldByIndex(path).SetInt(int64(d))
				if field == "After" && d < 0 { // it turns the recovery off
					fits = true
				}
				err := accept(t, o.Interface())
				switch {
				case fits && err != nil:
					t.Errorf("%s.%s = %v is refused: %v", name, field, d, err)
				case !fits && (err == nil || !strings.Contains(err.Error(), strings.TrimPrefix(field, "Lock")+" is "+d.String())):
					t.Errorf("%s.%s = %v: the error is %v", name, field, d, err)
				}
			}
		}
	}
}

func TestEveryConfiguredDurationIsChecked(t *testing.T) {
	t.Parallel()
	for _, dir := range []string{"locking", "middleware", "attach", "worker", "delayqueue", "items", "inspect", "inspect/admin"} {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %d files, %v", dir, len(files), err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			source, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			parsed, err := parser.ParseFile(token.NewFileSet(), file, source, 0)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(parsed, func(n ast.Node) bool {
				spec, ok := n.(*ast.TypeSpec)
				if !ok {
					return true
				}
				name := filepath.Base(dir) + "." + spec.Name.Name
				if spec.Name.IsExported() && hasDuration(spec) && configured[name] == nil && !reported[name] {
					t.Errorf("%s has durations and is in no list of this test", name)
				}
				return false
			})
		}
	}
}

// hasDuration reports whether a struct has an exported field that is a duration.
func hasDuration(spec *ast.TypeSpec) bool {
	s, ok := spec.Type.(*ast.StructType)
	if !ok {
		return false
	}
	for _, f := range s.Fields.List {
		sel, ok := f.Type.(*ast.SelectorExpr)
		if !ok || sel.Sel.Name != "Duration" {
			continue
		}
		for _, name := range f.Names {
			if name.IsExported() {
				return true
			}
		}
	}
	return false
}
