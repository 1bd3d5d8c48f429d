//go:build !thorough

package attach_test

// make test plays few, make thorough all.
const (
	lostReplies = 1500
	stranded    = 600
	excluded    = 300
)
