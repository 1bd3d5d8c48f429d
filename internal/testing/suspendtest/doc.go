// Package suspendtest has locks tested while the machine of a holder is suspended: the holder is a process that is
// stopped, and whose monotonic clock is held back for as long. scripts/suspend.sh builds it.
package suspendtest
