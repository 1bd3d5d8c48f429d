package namespace

import (
	"errors"
	"fmt"
	"strings"

	"github.com/railtoken/railtoken/internal/asynqwire"
)

// maxName is the maximum length of a name.
const maxName = 64

// theirs begins the names of asynq.
const theirs = asynqwire.Namespace

// Namespace is the prefix of an application's names in Redis. The zero value is none.
type Namespace struct {
	Name string
	// Tasks says that asynq's names have the prefix, too.
	Tasks bool
}

// New returns the Namespace with a name. An empty one is none. The error says why a name is unfit, and what to do.
func New(name string, tasks bool) (Namespace, error) {
	if name == "" {
		if tasks {
			return Namespace{}, errors.New("asynq's keys are to have a namespace, but it is empty: name one")
		}
		return Namespace{}, nil
	}
	remedy := "use letters, digits, '-', '_' and '.', such as \"shop-a\""
	switch {
	case len(name) > maxName:
		return Namespace{}, fmt.Errorf("the namespace has %d bytes, and may have %d: shorten it", len(name), maxName)
	case strings.EqualFold(name, "asynq"), strings.EqualFold(name, "railtoken"):
		return Namespace{}, fmt.Errorf("the namespace %q begins the names of programs without a namespace: choose another one", name)
	}
	for _, c := range name {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '_' && c != '.' {
			return Namespace{}, fmt.Errorf("the namespace %q has %q in it: %s", name, c, remedy)
		}
	}
	return Namespace{name, tasks}, nil
}

// IsZero reports whether there is no namespace.
func (n Namespace) IsZero() bool { return n.Name == "" }

// String returns the prefix, such as "shop-a:"; "" if there is none.
func (n Namespace) String() string {
	if n.Name == "" {
		return ""
	}
	return n.Name + ":"
}

// In returns the name in Redis of a key or a channel, or the pattern of several.
func (n Namespace) In(name string) string {
	if n.covers(name) {
		return n.String() + name
	}
	return name
}

// covers reports whether a name has the prefix in Redis.
func (n Namespace) covers(name string) bool {
	return n.Name != "" && (n.Tasks || !strings.HasPrefix(name, theirs))
}

// Rule returns the pattern of an ACL rule for names in the namespace, from that for the same names without one, such as
// "railtoken:*".
func (n Namespace) Rule(pattern string) string {
	if n.covers(pattern) {
		return n.String() + "*"
	}
	return pattern
}
