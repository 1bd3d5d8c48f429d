package redistest

import (
	"flag"
	"strconv"
)

// SideBySide lets n parallel tests run at a time, however few cores there are. It is called in TestMain of a package whose tests mostly
// wait for servers. What -parallel on the command line says is read later and wins.
func SideBySide(n int) {
	if err := flag.Set("test.parallel", strconv.Itoa(n)); err != nil {
		panic(err)
	}
}
