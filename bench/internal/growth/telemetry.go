package growth

import (
	"context"

	"github.com/railtoken/railtoken/bench/internal/lockall"
	"github.com/railtoken/railtoken/bench/internal/server"
	"github.com/railtoken/railtoken/metrics/prometheus"
	"github.com/railtoken/railtoken/worker"
)

// telemetryParts is how many slices of each row a round has. The differences are far smaller than between two slices.
const telemetryParts = 40

// telemetry is what tasks cost without reports and metrics, with the reports alone, and with both. A report comes every
// 5 s.
func telemetry(tasks int) series {
	rows := []string{"neither", "reports", "reports and Prometheus"}
	return series{
		"cost-telemetry", "a task that does nothing, with reports and metrics",
		[]int{0, 1, 2},
		telemetryParts,
		func(ctx context.Context, at *server.Server, i int) (bench, error) {
			cfg := worker.Config{DisableReports: i == 0}
			if i == 2 {
				cfg.Observer = prometheus.New(prometheus.Options{}).Observe
			}
			return startCrew(ctx, at, cfg, lockall.Keys(1000), telemetryParts, tasks/2)
		},
		func(i int) string { return rows[i] },
	}
}
