package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"unsafe"
)

// screen is a pseudo terminal: what a person sees and types.
type screen struct {
	*testing.T
	*os.File
	seen []byte
}

// on starts the command on a terminal of its own.
func on(t *testing.T, c *exec.Cmd) *screen {
	t.Helper()
	m, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("this machine has no pseudo terminals: %v", err)
	}
	t.Cleanup(func() { _ = m.Close() })
	ask := func(call uintptr, n *uint32) {
		t.Helper()
		raw, err := m.SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		var failed syscall.Errno
		err = raw.Control(func(fd uintptr) {
			_, _, failed = syscall.Syscall(syscall.SYS_IOCTL, fd, call, uintptr(unsafe.Pointer(n)))
		})
		if err != nil || failed != 0 {
			t.Skipf("this machine has no pseudo terminals: %v %v", err, failed)
		}
	}
	var number, locked uint32
	ask(syscall.TIOCSPTLCK, &locked)
	ask(syscall.TIOCGPTN, &number)
	size := [4]uint16{24, 80} // a new terminal has none
	ask(syscall.TIOCSWINSZ, (*uint32)(unsafe.Pointer(&size[0])))
	s, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("this machine has no pseudo terminals: %v", err)
	}
	defer func() { _ = s.Close() }()
	c.Stdin, c.Stdout, c.Stderr = s, s, s
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	return &screen{T: t, File: m}
}

// wait waits for a text on the screen, and types an answer.
func (s *screen) wait(text, answer string) {
	s.Helper()
	for b := make([]byte, 256); !strings.Contains(string(s.seen), text); {
		n, err := s.Read(b)
		if s.seen = append(s.seen, b[:n]...); err != nil {
			s.Fatalf("no %q: %v in\n%s", text, err, s.seen)
		}
	}
	s.seen = nil
	if _, err := io.WriteString(s, answer); err != nil {
		s.Fatal(err)
	}
}

// rest is what is printed until the end.
func (s *screen) rest() string {
	b, _ := io.ReadAll(s) // ends with EIO
	return string(s.seen) + string(b)
}

// TestTerminalInterrupt: ctrl-C at a prompt ends the process at once, with 130, and it says what
// has been done.
func TestTerminalInterrupt(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	const ctrlC = "\x03"
	for _, typed := range [][2]string{
		{"Why? (others read it): "},
		{"Why? (others read it): ", "Type orders to pause it: "},
	} {
		c := command(t, "queue", "pause", "orders", "--for", "1h")
		c.Env = append(c.Env, "ONCEQ_CONFIG="+p.config, "TERM=xterm")
		s := on(t, c)
		if typed[1] != "" {
			s.wait(typed[0], "the bank is down\n")
			s.wait(typed[1], ctrlC)
		} else {
			s.wait(typed[0], ctrlC)
		}
		said := s.rest()
		ends(t, c.Wait(), 130)
		if !strings.Contains(said, "onceq: interrupted; nothing was done") {
			t.Errorf("%q", said)
		}
	}
	// A person's yes goes on.
	c := command(t, "queue", "pause", "orders", "--for", "1h", "--reason", "x")
	c.Env = append(c.Env, "ONCEQ_CONFIG="+p.config, "TERM=xterm")
	s := on(t, c)
	s.wait("Type orders to pause it: ", "orders\n")
	said := s.rest()
	ends(t, c.Wait(), 0)
	if !strings.Contains(said, "orders paused until") {
		t.Errorf("%q", said)
	}
}
