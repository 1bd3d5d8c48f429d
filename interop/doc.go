// Package interop holds the lockers of railtoken to what others expect of a lock. It has tests only, in a module of its own so
// that nobody who uses the library fetches what they need.
//
//   - Suites that others wrote for locks run over each of our backends, by adapters in the test files: the elections of
//     Trillian and the high availability backends of Vault.
//   - Other programs take locks of the same name on the same servers, and each must exclude the other: redsync, redislock and,
//     in a process of its own, the npm package redlock.
//
// "make interop" runs it and installs the npm packages. The module is not part of the workspace, because what the suites
// require would choose the versions that the library is tested with.
package interop
