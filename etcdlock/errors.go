package etcdlock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/railtoken/railtoken/locking"
)

// classify makes err match locking.ErrUnavailable if another attempt may succeed: unless the caller has ended this one,
// or etcd refuses it for good. It adds the remedy where there is one.
func (s *store) classify(ctx context.Context, err error) error {
	if isUnanswered(err) {
		err = fmt.Errorf("etcd at %s: %w", endpoints(s.client.Endpoints()), err)
	}
	cause := context.Cause(ctx)
	if deadline, ok := ctx.Deadline(); cause == nil && ok && !time.Now().Before(deadline) {
		cause = context.DeadlineExceeded // etcd was quicker than the context's timer
	}
	if cause != nil {
		if errors.Is(err, cause) {
			return err
		}
		return fmt.Errorf("%w: %w", cause, err)
	}
	if s.client.Ctx().Err() != nil {
		return fmt.Errorf("the client of etcd is closed: %w", err)
	}
	if remedy := s.remedy(err); remedy != "" {
		err = fmt.Errorf("%w: %s", err, remedy)
	}
	if isPermanent(err) {
		return err
	}
	return fmt.Errorf("%w: %w", locking.ErrUnavailable, err)
}

// isUnanswered reports whether etcd cannot be reached, or does not serve.
func isUnanswered(err error) bool {
	_, answered := status.FromError(err) // a member that is without a leader until the deadline says so by codes.Unknown
	code := codeOf(err)
	return code == codes.Unavailable || code == codes.DeadlineExceeded || errors.Is(err, context.DeadlineExceeded) ||
		answered && code == codes.Unknown
}

// endpoints returns the hosts and ports of endpoints, which may be URLs with credentials.
func endpoints(all []string) string {
	hosts := make([]string, len(all))
	for i, endpoint := range all {
		if _, rest, ok := strings.Cut(endpoint, "://"); ok {
			endpoint = rest
		}
		host := endpoint[strings.LastIndex(endpoint, "@")+1:]
		if n := strings.IndexAny(host, "/?#"); n > 0 { // a socket's path begins there
			host = host[:n]
		}
		hosts[i] = host
	}
	return strings.Join(hosts, ", ")
}

// remedy returns what to do about an error, if that is known.
func (s *store) remedy(err error) string {
	switch {
	case errors.Is(err, rpctypes.ErrTooManyOps):
		return "lock fewer keys at a time, or raise --max-txn-ops of etcd"
	case errors.Is(err, rpctypes.ErrPermissionDenied):
		return fmt.Sprintf("etcdctl role grant-permission ROLE --prefix=true readwrite %q", s.prefix)
	case isRefusedUser(err):
		return "give the client of etcd a Username and a Password, or a certificate, of a user with the permission " +
			fmt.Sprintf("readwrite on the prefix %q", s.prefix)
	case errors.Is(err, rpctypes.ErrNoSpace):
		return "compact and defragment etcd, then etcdctl alarm disarm, and start it with " +
			"--auto-compaction-mode=periodic --auto-compaction-retention=5m"
	default:
		return ""
	}
}

// isRefusedUser reports whether etcd does not know the user. An operator can mend that, so the caller tries again.
func isRefusedUser(err error) bool {
	for _, refusal := range []error{rpctypes.ErrUserEmpty, rpctypes.ErrAuthFailed, rpctypes.ErrInvalidAuthToken} {
		if errors.Is(err, refusal) {
			return true
		}
	}
	return false
}

// final is an error that the same call will have again.
type final struct{ error }

// isPermanent reports whether the same call will fail again.
func isPermanent(err error) bool {
	if _, ok := errors.AsType[final](err); ok {
		return true
	}
	if isRefusedUser(err) || errors.Is(err, rpctypes.ErrAuthOldRevision) {
		return false
	}
	switch codeOf(err) {
	case codes.InvalidArgument, codes.FailedPrecondition, codes.OutOfRange, codes.Unimplemented:
		return true
	default:
		return false
	}
}

// codeOf returns the gRPC code of an error of the client.
func codeOf(err error) codes.Code {
	if e, ok := errors.AsType[rpctypes.EtcdError](err); ok {
		return e.Code()
	}
	return status.Code(err)
}

// isGone reports whether err says that a lease of etcd does not exist.
func isGone(err error) bool { return errors.Is(err, rpctypes.ErrLeaseNotFound) }

// op returns the error of an operation on keys.
func (s *store) op(ctx context.Context, name string, keys []string, err error) error {
	return &locking.OpError{Op: name, Keys: keys, Err: s.classify(ctx, err)}
}
