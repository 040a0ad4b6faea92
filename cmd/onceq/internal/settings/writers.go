package settings

import (
	"io/fs"
	"os/user"
)

// This file owns who may write a configuration file beside its owner. file.go asks it once.

// writersOf names who else may write a file of that mode; empty = nobody. own says that its group
// has no member but the file's owner.
func writersOf(mode fs.FileMode, own bool) string {
	switch {
	case !mode.IsRegular(): // a pipe, or a device
	case mode.Perm()&0o002 != 0:
		return "others"
	case mode.Perm()&0o020 != 0 && !own:
		return "its group"
	}
	return ""
}

// An accounts answers what the system knows of users and groups.
type accounts struct {
	user  func(id string) (*user.User, error)
	group func(id string) (*user.Group, error)
}

// private reports whether the group is the user's alone, as most systems make one for each user: it
// is the user's first, and it has the user's name. Who is not known has none.
func (a accounts) private(uid, gid string) bool {
	u, err := a.user(uid)
	if err != nil || u.Gid != gid {
		return false
	}
	g, err := a.group(gid)
	return err == nil && g.Name == u.Username
}
