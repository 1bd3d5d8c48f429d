// Package rediswire is what railtoken needs to know of any Redis: how a key of any bytes is part of a name, what an error
// reply means, whether a server may evict what it was given, and how a script is composed of functions.
package rediswire
