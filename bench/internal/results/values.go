package results

import (
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"time"
)

// digits is how many digits of a value are written: more than any figure of the report shows.
const digits = 6

// Values are those of several rounds. JSON has null for NaN and infinities, which are read back as NaN.
type Values []float64

// MarshalJSON writes null for what is no number.
func (v Values) MarshalJSON() ([]byte, error) {
	all := make([]*float64, len(v))
	for i := range v {
		if !math.IsNaN(v[i]) && !math.IsInf(v[i], 0) {
			rounded, err := strconv.ParseFloat(strconv.FormatFloat(v[i], 'g', digits, 64), 64)
			if err != nil {
				return nil, err
			}
			all[i] = &rounded
		}
	}
	return json.Marshal(all)
}

// UnmarshalJSON reads null as NaN.
func (v *Values) UnmarshalJSON(data []byte) error {
	var all []*float64
	if err := json.Unmarshal(data, &all); err != nil {
		return err
	}
	*v = make(Values, len(all))
	for i, value := range all {
		(*v)[i] = math.NaN()
		if value != nil {
			(*v)[i] = *value
		}
	}
	return nil
}

// Spread returns the median and the quartiles of the values that are numbers; NaN when none is.
func (v Values) Spread() Spread {
	sorted := slices.DeleteFunc(slices.Clone(v), math.IsNaN)
	slices.Sort(sorted)
	return Spread{Median: quantile(sorted, 0.5), Low: quantile(sorted, 0.25), High: quantile(sorted, 0.75)}
}

// Median returns the median of the values that are numbers; NaN when none is.
func (v Values) Median() float64 { return v.Spread().Median }

// Mean returns the arithmetic mean; NaN when there are no values.
func (v Values) Mean() float64 {
	sum := 0.
	for _, value := range v {
		sum += value
	}
	return sum / float64(len(v))
}

// Spread sums up the values of several rounds: the median, and the quartiles between which the middle half lies.
type Spread struct {
	Median, Low, High float64
}

// Ratios divides each value by that of the same round in base. It is NaN in a round that lacks either, and nil when all
// do.
func Ratios(values, base Values) Values {
	ratios := make(Values, min(len(values), len(base)))
	some := false
	for i := range ratios {
		ratios[i] = values[i] / base[i]
		if base[i] == 0 {
			ratios[i] = math.NaN()
		}
		some = some || !math.IsNaN(ratios[i])
	}
	if !some {
		return nil
	}
	return ratios
}

// PercentileIn returns the time, in units, that the share p of the sorted times does not exceed; NaN when there are
// none.
func PercentileIn(unit time.Duration, sorted []time.Duration, p float64) float64 {
	if len(sorted) == 0 {
		return math.NaN()
	}
	rank := int(math.Ceil(p * float64(len(sorted))))
	return float64(sorted[min(max(rank, 1), len(sorted))-1]) / float64(unit)
}

// Grouped sets a space before each three digits of an integer.
func Grouped(digits, space string) string {
	for i := len(digits) - 3; i > 0 && digits[i-1] != '-'; i -= 3 {
		digits = digits[:i] + space + digits[i:]
	}
	return digits
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
