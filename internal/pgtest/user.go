//go:build unix

package pgtest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
)

// serverUser is whom the server runs as when we are root, because PostgreSQL refuses
// to run as root; nil means ourselves.
var serverUser = sync.OnceValue(func() *syscall.Credential {
	if os.Geteuid() != 0 {
		return nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, uidErr := strconv.ParseUint(u.Uid, 10, 32)
		gid, gidErr := strconv.ParseUint(u.Gid, 10, 32)
		if uidErr == nil && gidErr == nil {
			return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		}
	}
	return nil
})

func asServerUser(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Credential = serverUser()
}

// inOwnGroup keeps an interrupt from the terminal away from the supervisor, which must
// outlive the tests by a moment.
func inOwnGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr.Setpgid = true
}

// durableParents are the places for a cluster that must be on a disk, and
// fastParents those for one that is better in memory.
func durableParents() []string { return []string{os.TempDir(), "/tmp", "/var/tmp"} }

func fastParents() []string {
	parents := durableParents()
	if memory, ok := memoryDir(); ok {
		parents = append([]string{memory}, parents...)
	}
	return parents
}

// makeDir makes the cluster's directory in the first of the places where the server's
// user can reach it: a root user's TMPDIR is often closed to others.
func makeDir(parents []string) (string, error) {
	var errs []error
	for _, parent := range parents {
		if serverUser() != nil && !openToAll(parent) {
			errs = append(errs, fmt.Errorf("%s is closed to the server's user", parent))
			continue
		}
		dir, err := os.MkdirTemp(parent, "pgtest-")
		if err == nil {
			err = giveToServer(dir)
		}
		if err == nil {
			return dir, nil
		}
		errs = append(errs, err)
	}
	return "", fmt.Errorf("making a directory for PostgreSQL: %w", errors.Join(errs...))
}

// openToAll reports whether everybody may pass through dir and all above it.
func openToAll(dir string) bool {
	for ; ; dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		if err != nil || info.Mode()&0o001 == 0 {
			return false
		}
		if dir == filepath.Dir(dir) {
			return true
		}
	}
}

func giveToServer(path string) error {
	u := serverUser()
	if u == nil {
		return nil
	}
	if err := os.Chown(path, int(u.Uid), int(u.Gid)); err != nil {
		return fmt.Errorf("giving %s to the server's user: %w", path, err)
	}
	return nil
}

func removeAll(path string) error {
	if err := os.RemoveAll(path); err != nil {
		return fmt.Errorf("removing the cluster's files: %w", err)
	}
	return nil
}
