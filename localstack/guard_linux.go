package localstack

import "syscall"

// endWithParent ends a child when the guard itself is killed. It holds for a guard's first thread,
// which runs its init and lives as long as the process.
func endWithParent(a *syscall.SysProcAttr, sig syscall.Signal) { a.Pdeathsig = sig }

// memoryDir is a folder in memory, if there is one with so many bytes free.
func memoryDir(free uint64) string {
	const dir, tmpfs = "/dev/shm", 0x01021994
	var fs syscall.Statfs_t
	if err := syscall.Statfs(dir, &fs); err != nil || fs.Type != tmpfs || fs.Bavail*uint64(fs.Bsize) < free {
		return ""
	}
	return dir
}
