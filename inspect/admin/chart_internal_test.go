package admin

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/railtoken/railtoken/internal/holdings"
)

// drawn returns the charts of some minutes, the last one under way; nil stands for one that is not known.
func drawn(minutes ...*holdings.Point) []chart {
	hour, points := make([]holdings.Minute, len(minutes)), map[time.Time]*holdings.Point{}
	for n, p := range minutes {
		hour[n].At = time.Date(2026, 11, 26, 13, 58+n, 0, 0, time.UTC)
		points[hour[n].At] = p
	}
	return chartsOf(hour, func(m holdings.Minute) (holdings.Point, bool) {
		if p := points[m.At]; p != nil {
			return *p, true
		}
		return holdings.Point{}, false
	})
}

func TestAChartHasBarsAndGaps(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	for _, c := range drawn(
		nil, nil, &holdings.Point{Holds: -1}, &holdings.Point{Waiting: 1000, Oldest: 90 * time.Second, Holds: 10, Wakes: 1},
		nil, &holdings.Point{Waiting: 5, Oldest: 3 * time.Second, Holds: 5}, &holdings.Point{}, nil,
	) {
		fmt.Fprintln(&text, c.Name+":", c.Summary+";", c.From, c.To, c.Width)
		for _, b := range c.Bars {
			fmt.Fprintln(&text, "  bar", b)
		}
		for _, b := range c.Gaps {
			fmt.Fprintln(&text, "  gap", b)
		}
	}
	const want = `Waiting tasks: now 0, most 1` + "\u202f" + `000 at 14:01; 3 min not known; 13:58 14:05 80
  bar {31 0 8 100 14:01: 1` + "\u202f" + `000}
  bar {51 98 8 2 14:03: 5}
  gap {0 0 20 100 from 13:58: not known}
  gap {40 0 10 100 from 14:02: not known}
Oldest wait: now 0 s, most 1 min 30 s at 14:01; 3 min not known; 13:58 14:05 80
  bar {31 0 8 100 14:01: 1 min 30 s}
  bar {51 97 8 3 14:03: 3 s}
  gap {0 0 20 100 from 13:58: not known}
  gap {40 0 10 100 from 14:02: not known}
Holds: 15 in all, most 10 at 14:01; 4 min not known; 13:58 14:05 80
  bar {31 0 8 100 14:01: 10}
  bar {51 50 8 50 14:03: 5}
  gap {0 0 30 100 from 13:58: not known}
  gap {40 0 10 100 from 14:02: not known}
Wakes: 1 in all, most 1 at 14:01; 3 min not known; 13:58 14:05 80
  bar {31 0 8 100 14:01: 1}
  gap {0 0 20 100 from 13:58: not known}
  gap {40 0 10 100 from 14:02: not known}
Refusals: none; 3 min not known; 13:58 14:05 80
  gap {0 0 20 100 from 13:58: not known}
  gap {40 0 10 100 from 14:02: not known}
`
	if text.String() != want {
		t.Errorf("the charts are\n%swant\n%s", text.String(), want)
	}
}

func TestWithoutReportsThereAreNoCharts(t *testing.T) {
	t.Parallel()
	if charts := drawn(nil, nil, nil); charts != nil {
		t.Errorf("charts %+v", charts)
	}
	if charts := drawn(&holdings.Point{Holds: -1}, &holdings.Point{Holds: -1}); charts[2].Summary != "not counted" || charts[0].Summary != "none" {
		t.Errorf("charts of a key that nobody wanted: %+v", charts)
	}
}
