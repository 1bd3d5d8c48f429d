//go:build !race

package crashtest_test

// mostOf is at how many steps of one name there are faults: the later ones are as the first ones are.
const mostOf = 6
