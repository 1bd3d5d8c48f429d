package attach

import (
	"time"

	"github.com/railtoken/railtoken/internal/health"
)

// SetHealthLimits has the handlers of Ready and Live judge sooner.
func (a *Attached) SetHealthLimits(unready, dead time.Duration) {
	a.health.limits = health.Limits{Unready: unready, Dead: dead}
}
