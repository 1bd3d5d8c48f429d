package preflight

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Timeout is the maximum duration of the checks of one Redis.
const Timeout = 5 * time.Second

// Check returns an error if a Redis cannot be reached, is not fit for tasks and locks, or denies its user what they
// need. The text of the error continues a text that names the server.
func Check(ctx context.Context, client redis.UniversalClient, needs Needs, log *slog.Logger) error {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	if err := client.Ping(ctx).Err(); err != nil {
		return fmt.Errorf("cannot be used: %w: is it running, and are its address and password right?", err)
	}
	addr, user, isCluster := identity(client)
	log = log.With("redis", addr, "user", user)
	info, err := client.Info(ctx).Result()
	if err != nil {
		log.WarnContext(ctx, "INFO is unavailable; make sure that Redis is 6.2 or later and does not evict keys",
			"error", err)
	} else if err := checkInfo(info, isCluster, needs.AllowEviction); err != nil {
		if evicts(err) && len(needs.Queues) > 0 {
			err = fmt.Errorf("%w, or set AllowEviction (RAILTOKEN_ALLOW_EVICTION=true)", err)
		}
		return err
	} else if other := Untested(ParseInfo(info)); other != "" {
		log.WarnContext(ctx, "railtoken is not tested with this server", "server", other)
	}
	return checkUser(ctx, client, user, needs, log)
}

// identity returns the address and the user of a client, for messages.
func identity(client redis.UniversalClient) (addr, user string, isCluster bool) {
	switch c := client.(type) {
	case *redis.Client:
		addr, user = c.Options().Addr, c.Options().Username
	case *redis.ClusterClient:
		addr, user, isCluster = strings.Join(c.Options().Addrs, ","), c.Options().Username, true
	}
	if user == "" {
		user = "default"
	}
	return addr, user, isCluster
}

// checkUser checks the ACL rules of the user. It only warns about missing rules for channels.
func checkUser(ctx context.Context, client redis.UniversalClient, user string, needs Needs, log *slog.Logger) error {
	report, err := MissingRules(ctx, client, needs)
	if err != nil {
		log.WarnContext(ctx, "the Redis user's rules could not be checked everywhere", "error", err)
	}
	if len(report.Lacks) > 0 {
		return fmt.Errorf("lacks %s: %s", strings.Join(report.Lacks, ", "), LacksRemedy)
	}
	if len(report.Missing) > 0 {
		return fmt.Errorf("does not let the user %q do what tasks and locks need: run there ACL SETUSER %s %s",
			user, user, strings.Join(slices.Concat(report.Missing, report.Hints), " "))
	}
	if len(report.Hints) > 0 {
		log.WarnContext(ctx, "the Redis user may not use channels: "+
			"tasks that wait in their slots look for their keys, up to half a second late, "+
			"and asynq cannot be told to cancel a task", "remedy", "ACL SETUSER "+user+" "+strings.Join(report.Hints, " "))
	}
	return nil
}

// checkInfo returns why a Redis whose INFO is info is not fit, or nil. What info lacks is assumed to be right.
func checkInfo(info string, isCluster, allowEviction bool) error {
	var errs []error
	for _, fault := range Faults(ParseInfo(info), isCluster) {
		if fault.Kind != Evicts || !allowEviction {
			errs = append(errs, faultError{fault})
		}
	}
	return errors.Join(errs...)
}

// olderThan reports whether a version is older than major.minor; false if it cannot be parsed.
func olderThan(version string, major, minor int) bool {
	parts := strings.SplitN(version, ".", 3)
	if len(parts) < 2 {
		return false
	}
	m, err1 := strconv.Atoi(parts[0])
	n, err2 := strconv.Atoi(parts[1])
	return err1 == nil && err2 == nil && (m < major || m == major && n < minor)
}
