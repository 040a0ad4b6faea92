//go:build linux || freebsd

package child

import (
	"os/exec"
	"syscall"
)

// tie lets the system kill the child with its parent. The hangup of an orphaned group does not do:
// a stop that is on its way when the parent dies comes after it, and nobody would wake the child
// again.
func tie(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid, cmd.SysProcAttr.Pdeathsig = true, syscall.SIGKILL
}
