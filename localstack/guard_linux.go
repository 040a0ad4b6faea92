package localstack

import "syscall"

// endWithParent ends a child when the guard itself is killed.
func endWithParent(a *syscall.SysProcAttr, sig syscall.Signal) { a.Pdeathsig = sig }
