//go:build thorough

package crashtest_test

const (
	// mostOf is at how many steps of one name there are faults: the later ones are as the first ones are.
	mostOf = 6
	// everyFault has every fault at each of these steps.
	everyFault = true
)
