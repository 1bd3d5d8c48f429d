// Package lockwire is how locks look in Redis: the names of their keys, the values and labels that name their owners, and the
// records of owners that were deposed.
package lockwire
