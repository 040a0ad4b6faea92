package lambdaruntime

import "syscall"

// endWithParent lets no frozen sandbox outlive a test that is killed.
func endWithParent(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGKILL }
