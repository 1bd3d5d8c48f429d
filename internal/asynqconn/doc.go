// Package asynqconn is the seam between asynq and Redis: the client that an asynq server speaks through.
//
// asynq keeps its tasks by a small set of Lua scripts. A [Conn] recognises them by their SHA-1, which a test pins for the version of asynq that this
// module is built with, and stands between asynq and Redis where asynq itself cannot be changed: it sends an acknowledgement whose context
// has ended, it slows down fetches that fail, and it wakes an idle server when a task is ready. Every other command passes unchanged.
//
// Scripts of another version of asynq pass unchanged too. Those that fetch or acknowledge a task are then recognised by the names of their keys, and
// the first one is logged.
package asynqconn
