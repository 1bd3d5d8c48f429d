// Package interop checks that railtoken's lockers do what others expect of a lock. It contains only tests, in a module of
// its own, so that users of the library do not fetch the dependencies of the tests.
//
//   - Lock test suites of other projects run against each of our backends, through adapters in the test files: Trillian's
//     for elections and Vault's for high-availability backends.
//   - Other programs take locks with the same names on the same servers, and each side must exclude the other: redsync,
//     redislock and, in a process of its own, the npm package redlock.
//
// "make interop" runs it and installs the npm packages. The module is not part of the workspace, because the requirements of
// the suites would determine the versions with which the library is tested.
package interop
