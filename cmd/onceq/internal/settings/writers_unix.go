//go:build unix

package settings

import (
	"io/fs"
	"os/user"
	"strconv"
	"syscall"
)

// writers names who may write the file beside its owner; empty = nobody.
func writers(info fs.FileInfo) string {
	own := false
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		id := func(n uint32) string { return strconv.FormatUint(uint64(n), 10) }
		own = accounts{user.LookupId, user.LookupGroupId}.private(id(s.Uid), id(s.Gid))
	}
	return writersOf(info.Mode(), own)
}
