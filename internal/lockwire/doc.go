// Package lockwire is how locks look in Redis: the names of their keys, the values and labels that name their owners, the
// records of owners that were deposed, and the scripts' functions that take and release them.
package lockwire
