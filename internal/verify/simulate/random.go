package simulate

import "math"

// random is a small generator (SplitMix64), whose numbers depend only on the seed, on any machine and version of Go.
type random struct{ state uint64 }

func (r *random) next() uint64 {
	r.state += 0x9e3779b97f4a7c15
	z := r.state
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// below returns a random number from 0 to n-1.
func (r *random) below(n int64) int64 { return int64((r.next() >> 32) * uint64(n) >> 32) }

// between returns a number from low to high-1, or low.
func (r *random) between(low, high int64) int64 {
	if high <= low {
		return low
	}
	return low + int64(r.next()%uint64(high-low))
}

// unit returns a number from 0 on, below 1.
func (r *random) unit() float64 { return float64(r.next()>>11) / (1 << 53) }

// after returns a random time to an event that occurs once per mean, without memory.
func (r *random) after(mean int64) int64 { return 1 + int64(-math.Log(1-r.unit())*float64(mean)) }

// odds is a probability.
type odds uint32

func oddsOf(p float64) odds { return odds(min(p, 1) * math.MaxUint32) }

func (r *random) chance(o odds) bool { return o > 0 && uint32(r.next()>>32) < uint32(o) }

// delays is a distribution of the time that a message takes one way, as a table.
type delays [4096]int32

// newDelays returns a distribution with a short body, and a tail: a message of tail needs up to longest, most of them
// far less.
func newDelays(r *random, tail float64, longest int64) *delays {
	d := new(delays)
	heavy := int(tail * float64(len(d)))
	for i := range d {
		d[i] = int32(40 + r.below(80) + r.below(1+r.below(200)))
		if i < heavy { // Pareto with exponent 1 from 1 ms on
			d[i] = int32(min(1000/(1-r.unit()), float64(longest)))
		}
	}
	return d
}

func (d *delays) draw(r *random) int64 {
	x := r.next()
	return int64(d[x&4095]) + int64(x>>12&15)
}
