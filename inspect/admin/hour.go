package admin

import (
	"context"
	"time"

	"github.com/railtoken/railtoken/internal/holdings"
)

// lastHour is what happened in the last hour: charts, none if nothing is known, or why it cannot be read.
type lastHour struct {
	Charts  []chart
	HourErr string
}

// lastHour reads what happened in the last hour. All pages share one read.
func (p *Page) lastHour(ctx context.Context, of func(holdings.Minute) (holdings.Point, bool)) lastHour {
	hour, err := readEach(ctx, &p.reads, "hour", holdings.Interval, func(ctx context.Context) ([]holdings.Minute, error) {
		return holdings.ReadHistory(ctx, p.opts.Tasks, time.Now(), holdings.Minutes)
	})
	if err != nil {
		return lastHour{HourErr: err.Error()}
	}
	return lastHour{Charts: chartsOf(hour, of)}
}
