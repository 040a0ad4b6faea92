//go:build unix && !linux

package localstack

import "syscall"

func endWithParent(*syscall.SysProcAttr, syscall.Signal) {}

func memoryDir(uint64) string { return "" }
