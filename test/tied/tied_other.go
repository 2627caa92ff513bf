//go:build !linux

package tied

import "syscall"

func dieWithParent(*syscall.SysProcAttr) {} // only Linux has it
