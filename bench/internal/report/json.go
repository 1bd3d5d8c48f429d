package report

import (
	"encoding/json"
	"math"
)

// floats are written to JSON with null for what is no number, which JSON does not have.
type floats []float64

// MarshalJSON writes null for NaN and infinities.
func (f floats) MarshalJSON() ([]byte, error) {
	values := make([]*float64, len(f))
	for i := range f {
		if !math.IsNaN(f[i]) && !math.IsInf(f[i], 0) {
			values[i] = &f[i]
		}
	}
	return json.Marshal(values)
}

// MarshalJSON writes every value of every round.
func (r *Row) MarshalJSON() ([]byte, error) {
	values := map[string]floats{}
	for column, v := range r.Values {
		values[column] = v
	}
	return json.Marshal(struct {
		Name   string
		Values map[string]floats
		Cells  map[string]string `json:",omitempty"`
		Note   string            `json:",omitempty"`
	}{r.Name, values, r.Cells, r.Note})
}

// MarshalJSON writes the median and the quartiles.
func (t Target) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		What  string
		Least bool
		Bound float64
		Met   bool
		Got   floats
	}{t.What, t.Least, t.Bound, t.Met(), floats{t.Got.Median, t.Got.Low, t.Got.High}})
}
