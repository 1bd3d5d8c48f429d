// Package surface tests that the exported names of the module's public packages are those listed in testdata, so that
// they change only on purpose.
package surface
