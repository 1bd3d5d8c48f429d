package broker

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/testing/asynqtest"
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

// A busy machine is no other asynq.
func TestASlowAsynqIsRecognised(t *testing.T) {
	t.Parallel()
	for pause, want := range map[time.Duration]bool{time.Second: true, time.Minute: false} {
		synctest.Test(t, func(t *testing.T) {
			err := recognise(func(c redis.UniversalClient) redis.UniversalClient {
				return asynqtest.OtherVersion{UniversalClient: c, Changed: func(sum string, _ []string) bool {
					if scripts[sum] == "dequeue" {
						time.Sleep(pause)
					}
					return false
				}}
			})
			if (err == nil) != want || errors.Is(err, ErrAsynq) {
				t.Errorf("with a pause of %v before each fetch: %v", pause, err)
			}
		})
	}
}

func TestOnlyAVerdictAboutScriptsIsKept(t *testing.T) {
	t.Parallel()
	slow := errors.New("slow")
	for _, sure := range []error{nil, ErrAsynq} {
		var v verdict
		answers := []error{slow, slow, sure, slow}
		looks := 0
		for _, want := range []error{slow, slow, sure, sure, sure} {
			if got := v.of(func() error {
				looks++
				return answers[looks-1]
			}); !errors.Is(got, want) {
				t.Errorf("look %d says %v, want %v", looks, got, want)
			}
		}
		if looks != 3 {
			t.Errorf("%d looks, want three", looks)
		}
	}
}
