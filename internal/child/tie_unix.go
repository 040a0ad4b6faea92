//go:build unix && !linux && !freebsd

package child

import (
	"os/exec"
	"syscall"
)

func tie(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }
