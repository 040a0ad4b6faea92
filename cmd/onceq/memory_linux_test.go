package main

import (
	"bufio"
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
)

// mostOwn is what docs/command.md promises of top's memory, in KB.
const mostOwn = 15 << 10

// ownMemory is what a process has for itself, in KB: pages that it has written. Those of its file
// are not among them, because the kernel drops and reads them again as it likes.
func ownMemory(t *testing.T, pid int) (kb int) {
	t.Helper()
	f, err := os.Open(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		t.Skipf("this kernel does not tell: %v", err)
	}
	defer func() { _ = f.Close() }()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if rest, ok := strings.CutPrefix(lines.Text(), "Private_Dirty:"); ok {
			if _, err := fmt.Sscan(rest, &kb); err != nil {
				t.Fatal(err)
			}
			return kb
		}
	}
	t.Skip("this kernel does not tell")
	return 0
}

// TestTopMemory: a screen that stays open for days takes little memory of its own.
func TestTopMemory(t *testing.T) {
	if info, ok := debug.ReadBuildInfo(); ok && slices.ContainsFunc(info.Settings, func(s debug.BuildSetting) bool { return s.Key == "-race" && s.Value == "true" }) {
		t.Skip("the race detector has memory of its own")
	}
	t.Parallel()
	p := newPlace(t)
	c := command(t, "top", "--every", "1s")
	c.Env = append(c.Env, "ONCEQ_CONFIG="+p.config, "TERM=xterm")
	s := on(t, c)
	s.wait("letters", "")
	s.wait(":", "") // a second look has changed the clock
	kb := ownMemory(t, c.Process.Pid)
	t.Logf("%d KB", kb)
	if kb > mostOwn {
		t.Errorf("top has %d KB of its own, want %d at most", kb, mostOwn)
	}
	if _, err := s.WriteString("q"); err != nil {
		t.Fatal(err)
	}
	_ = s.rest()
	ends(t, c.Wait(), 0)
}
