package asynqconn

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/asynqtest"
)

func TestTheAsynqInUseIsRecognised(t *testing.T) {
	t.Parallel()
	if err := Recognise(); err != nil {
		t.Error(err)
	}
	began := time.Now()
	for range 20 {
		if err := recognise(func(c redis.UniversalClient) redis.UniversalClient { return c }); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("it takes %v", time.Since(began)/20)
}

// Each script counts: one that a new version has changed alone would do to tasks what nobody has looked at.
func TestAnAsynqWithOneOtherScriptIsNotRecognised(t *testing.T) {
	t.Parallel()
	for sum, name := range scripts {
		if kinds[name] == Other {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var keysOf []string // the other text is known by its keys
				err := recognise(func(c redis.UniversalClient) redis.UniversalClient {
					return asynqtest.OtherVersion{UniversalClient: c, Changed: func(is string, keys []string) bool {
						if is == sum {
							keysOf = keys
						}
						return is == sum || is == "" && slices.Equal(keys, keysOf)
					}}
				})
				if !errors.Is(err, ErrAsynq) || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), Versions) {
					t.Errorf("the error is %v", err)
				}
			})
		})
	}
}
