// Package namespace keeps applications apart that share one Redis: each has a prefix of its own before the names of its
// keys and channels.
//
// A namespace is a property of the connection. The Dialer of a client's options returns a connection that puts the prefix
// before each name that a command has, and takes it from the replies and messages that have names in them. So everything
// above the connection knows only the names without a prefix: asynq, its Inspector and Scheduler, and all packages of this
// module. What they store has no prefix either, such as the entries of a set that are names of other keys.
//
//   - commands.go lists where a command has names. One that is not listed is not sent: Redis gets a command in its
//     place that it does not know, and answers with an error that says why.
//   - script.go does the same in scripts. A script sees its KEYS without the prefix, and its redis.call puts the prefix
//     before the names. Its ARGV and what it returns are never changed. As its text is another one, Redis knows it by another SHA-1.
//   - conn.go and reply.go are the connection: one rewrites what is sent, the other the few replies that have names in
//     them.
//
// A payload is never looked at: only positions decide, not contents.
package namespace
