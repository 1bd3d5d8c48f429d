package locking_test

import (
	"context"
	"errors"
	"reflect"
	"testing"

	"github.com/railtoken/railtoken/locking"
)

// Every exported method of Lease is called, also those that will be added.
func TestANilLeaseIsOneThatWasReleased(t *testing.T) {
	t.Parallel()
	var lease *locking.Lease
	value := reflect.ValueOf(lease)
	for i := range value.NumMethod() {
		method := value.Method(i)
		args := make([]reflect.Value, method.Type().NumIn())
		for j := range args {
			args[j] = reflect.Zero(method.Type().In(j))
			if method.Type().In(j) == reflect.TypeFor[context.Context]() {
				args[j] = reflect.ValueOf(t.Context())
			}
		}
		name := value.Type().Method(i).Name
		for _, result := range method.Call(args) {
			err, isError := result.Interface().(error)
			if _, isContext := result.Interface().(context.Context); isError && !isContext && !errors.Is(err, locking.ErrReleased) {
				t.Errorf("%s returns %v", name, err)
			}
		}
	}
	if err := lease.Release(t.Context()); err != nil {
		t.Errorf("Release returns %v", err)
	}
	if cause := context.Cause(lease.Context(t.Context())); !errors.Is(cause, locking.ErrReleased) {
		t.Errorf("the context ends by %v", cause)
	}
	select {
	case <-lease.Done():
	default:
		t.Error("Done is open")
	}
}
