//go:build unix

package cli

import (
	"io/fs"
	"os"
	"syscall"
)

// noFollow keeps an open from following a link at the end of the path.
const noFollow = syscall.O_NOFOLLOW

// isOwn reports whether a file is the user's, and has no second name.
func isOwn(info fs.FileInfo) bool {
	s, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(s.Uid) == os.Geteuid() && s.Nlink == 1
}

// isPrivate reports whether nobody but its owner has rights on a file.
func isPrivate(info fs.FileInfo) bool { return info.Mode().Perm()&0o077 == 0 }
