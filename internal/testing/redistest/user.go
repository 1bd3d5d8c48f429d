package redistest

import (
	"testing"

	"github.com/redis/go-redis/v9"
)

// userPassword is that of every user that a test makes.
const userPassword = "a password of a test"

// User makes an ACL user of the server with these rules and no others, for example "~asynq:*", "+@all", and returns what makes a
// client log in as that user.
func (s *Server) User(tb testing.TB, name string, rules ...string) func(*redis.Options) {
	tb.Helper()
	args := []any{"ACL", "SETUSER", name, "reset", "resetchannels", "on", ">" + userPassword}
	for _, rule := range rules {
		args = append(args, rule)
	}
	if err := s.Client(tb).Do(tb.Context(), args...).Err(); err != nil {
		tb.Fatalf("redistest: user %s of %s: %v", name, s.Addr(), err)
	}
	return func(o *redis.Options) { o.Username, o.Password = name, userPassword }
}
