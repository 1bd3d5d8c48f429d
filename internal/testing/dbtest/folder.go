package dbtest

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"strconv"

	"github.com/railtoken/railtoken/internal/testing/process"
)

// unprivileged returns the user for servers that refuse to run as root, or nil if the tests do not run as root.
func unprivileged() (*process.User, error) {
	if os.Geteuid() != 0 {
		return nil, nil //nolint:nilnil // the user of the tests
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err := strconv.Atoi(u.Uid)
		if err != nil {
			continue
		}
		gid, err := strconv.Atoi(u.Gid)
		if err != nil {
			continue
		}
		return &process.User{UID: uid, GID: gid}, nil
	}
	return nil, errors.New("dbtest: the tests run as root, and there is no user postgres or nobody to run the server as")
}

// newFolder makes a folder in root that belongs to u. Those of testing.TB are closed to other users.
func newFolder(root string, u *process.User) (string, error) {
	dir, err := os.MkdirTemp(root, "railtoken-dbtest-") // u must have access
	if err != nil {
		return "", fmt.Errorf("dbtest: %w", err)
	}
	if u == nil {
		return dir, nil
	}
	if err := os.Chown(dir, u.UID, u.GID); err != nil {
		return "", errors.Join(fmt.Errorf("dbtest: %w", err), os.RemoveAll(dir))
	}
	return dir, nil
}
