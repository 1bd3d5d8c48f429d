package attach

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/middleware"
)

// Workers of one configuration must have one fingerprint, or an operator is warned of a difference that there is not.
func TestStrategiesHaveTheirSettingsAsName(t *testing.T) {
	t.Parallel()
	requeue := func(age time.Duration) middleware.Requeue {
		return middleware.Requeue{Limits: delayqueue.Limits{Age: age}}
	}
	// The functions have different addresses, as in two processes.
	one, same := requeue(1), requeue(1)
	one.OnLimit = func(_ context.Context, _ *asynq.Task, c *middleware.ConflictError) error { return c }
	same.OnLimit = func(context.Context, *asynq.Task, *middleware.ConflictError) error { return nil }
	tests := []struct {
		name      string
		one, same middleware.Strategy
		other     middleware.Strategy
	}{
		{"a limit", one, same, requeue(2)},
		{"a wait", middleware.Wait{Max: 1}.Then(one), middleware.Wait{Max: 1}.Then(same), middleware.Wait{Max: 2}.Then(one)},
		{"what follows a wait", middleware.Wait{}.Then(one), middleware.Wait{}.Then(same), middleware.Wait{}.Then(requeue(2))},
		{"a kind", middleware.FailFast{}, middleware.FailFast{}, middleware.Wait{}},
		{"none", nil, nil, middleware.FailFast{}},
	}
	for _, tt := range tests {
		got := strategySettings(tt.one)
		if same := strategySettings(tt.same); !slices.Equal(got, same) {
			t.Errorf("%s: equal strategies are %q and %q", tt.name, got, same)
		}
		if other := strategySettings(tt.other); slices.Equal(got, other) {
			t.Errorf("%s: different strategies are both %q", tt.name, got)
		}
	}
}
