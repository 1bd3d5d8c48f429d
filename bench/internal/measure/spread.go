package measure

import (
	"math"
	"slices"
	"time"
)

// Spread sums up the values of several rounds: the median, and the quartiles between which the middle half lies.
type Spread struct {
	Median, Low, High float64
}

// NewSpread returns the spread of the values that are numbers; every field is NaN when none is.
func NewSpread(values []float64) Spread {
	sorted := slices.DeleteFunc(slices.Clone(values), math.IsNaN)
	slices.Sort(sorted)
	return Spread{Median: quantile(sorted, 0.5), Low: quantile(sorted, 0.25), High: quantile(sorted, 0.75)}
}

// Ratios divides each value by the one of the same round in base. A round that either of them lacks gives none.
func Ratios(values, base []float64) []float64 {
	var ratios []float64
	for i := range min(len(values), len(base)) {
		if ratio := values[i] / base[i]; !math.IsNaN(ratio) && base[i] != 0 {
			ratios = append(ratios, ratio)
		}
	}
	return ratios
}

// Percentile returns the time that the share p of the sorted times does not exceed; 0 when there are none.
func Percentile(sorted []time.Duration, p float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	rank := int(math.Ceil(p * float64(len(sorted))))
	return sorted[min(max(rank, 1), len(sorted))-1]
}

// quantile interpolates between the two neighbours of the place.
func quantile(sorted []float64, p float64) float64 {
	if len(sorted) == 0 {
		return math.NaN()
	}
	place := p * float64(len(sorted)-1)
	below := int(place)
	above := min(below+1, len(sorted)-1)
	share := place - float64(below)
	if share == 0 || sorted[below] == sorted[above] { // also when either is infinite
		return sorted[below]
	}
	return sorted[below] + share*(sorted[above]-sorted[below])
}
