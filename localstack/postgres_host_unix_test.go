//go:build unix

package localstack

import (
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
)

// TestHandFollowsNoLink: what the server's account has put in our way is no file of ours, and the
// folder becomes its own only after the file has been written.
func TestHandFollowsNoLink(t *testing.T) {
	who, err := asWhom()
	if err != nil {
		t.Fatal(err)
	}
	owner := func(name string) int {
		info, err := os.Lstat(name)
		if err != nil {
			t.Fatal(err)
		}
		return int(info.Sys().(*syscall.Stat_t).Uid)
	}
	mine, theirs := os.Geteuid(), os.Geteuid()
	if who != nil {
		theirs = int(who.Uid)
	}
	dir, victim := t.TempDir(), filepath.Join(t.TempDir(), "victim")
	if err := os.WriteFile(victim, []byte("ours"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := cluster{dir: dir, who: who}
	file := filepath.Join(dir, "password")
	for _, to := range []string{victim, victim + ".new"} {
		if err := os.Symlink(to, file); err != nil {
			t.Fatal(err)
		}
		if err := c.hand(file, "secret"); err == nil {
			t.Errorf("it wrote through a link to %s", to)
		}
		if owner(dir) != mine || owner(victim) != mine {
			t.Errorf("the folder is %d's, the file behind the link %d's, want %d", owner(dir), owner(victim), mine)
		}
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
	}
	if text, err := os.ReadFile(victim); string(text) != "ours" || err != nil {
		t.Errorf("the file behind the link says %q, %v", text, err)
	}
	if _, err := os.Lstat(victim + ".new"); err == nil {
		t.Error("a file was made behind a link")
	}
	if err := c.hand(file, "secret"); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(file); string(text) != "secret" || err != nil {
		t.Errorf("it says %q, %v", text, err)
	}
	if owner(dir) != theirs || owner(file) != theirs {
		t.Errorf("the folder is %d's and the file %d's, want %d", owner(dir), owner(file), theirs)
	}
}

// TestNoPasswordStays: neither the password nor its verifier lies beside the data.
func TestNoPasswordStays(t *testing.T) {
	bin, err := postgresBin()
	if err != nil {
		t.Skip(err)
	}
	s := &site{dir: t.TempDir()}
	defer s.close()
	dir, err := s.scratch(0) // as the server's account may not pass through our own
	if err != nil {
		t.Fatal(err)
	}
	c := cluster{bin: bin, dir: dir, password: "of the test"}
	if c.who, err = asWhom(); err != nil {
		t.Fatal(err)
	}
	if err := c.init(t.Context()); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 || entries[0].Name() != "data" {
		t.Errorf("the folder has %v, %v", entries, err)
	}
}

// TestNoOtherServerIsBelieved: one that has taken the port, and asks for the password or for
// nothing at all, gets no password and is not taken.
func TestNoOtherServerIsBelieved(t *testing.T) {
	const password = "of the test"
	for name, asks := range map[string]string{
		"nothing":       "R\x00\x00\x00\x08\x00\x00\x00\x00" + "Z\x00\x00\x00\x05I",
		"in clear text": "R\x00\x00\x00\x08\x00\x00\x00\x03",
		"md5":           "R\x00\x00\x00\x0c\x00\x00\x00\x05salt",
	} {
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		got := make(chan string, 100)
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					close(got)
					return
				}
				_, _ = io.WriteString(c, asks)
				text, _ := io.ReadAll(c)
				got <- string(text)
				c.Close()
			}
		}()
		if _, err := pgx.Connect(t.Context(), postgresURL(password, l.Addr().String())); err == nil || !strings.Contains(err.Error(), "require_auth") {
			t.Errorf("a server that asks for %s: %v", name, err)
		}
		l.Close()
		for text := range got {
			if strings.Contains(text, password) || strings.Contains(text, "md5") {
				t.Errorf("a server that asks for %s got %q", name, text)
			}
		}
	}
}
