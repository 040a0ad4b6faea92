//go:build unix

package chromium

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/onceq/onceq/internal/rundir"
	"github.com/onceq/onceq/internal/testserver"
)

// This file owns the process, and the two pipes on which it takes commands and tells events: one
// JSON object after the other, each with a zero byte behind it. One goroutine reads what comes. mu
// guards who waits for an answer, and the tabs; a write has a lock of its own, because commands
// come from the goroutines of several tests.

var backend = testserver.Backend{Name: "chromium", Version: version, Start: find}

// programs are the names under which it is installed. The shells come first: they are the browser
// without its windows, and take a quarter of its processor time.
var programs = []string{
	"chromium-headless-shell", "chrome-headless-shell",
	"chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome",
}

// find looks for an installed program. Each test process starts a browser of its own, so there is
// nothing to share but the path.
func find(testserver.Order, *os.File) (rundir.Endpoint, error) {
	for _, name := range programs {
		path, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		v, err := version(context.Background(), path, "")
		if err != nil {
			return rundir.Endpoint{Err: testserver.OneLine(err)}, nil
		}
		return rundir.Endpoint{URL: path, Version: v, How: "host process"}, nil
	}
	return rundir.Endpoint{Err: "host process: no " + strings.Join(programs, ", ") + " in PATH"}, nil
}

func version(ctx context.Context, path, _ string) (string, error) {
	said, err := exec.CommandContext(ctx, path, "--version").Output()
	words := strings.Fields(string(said))
	if err != nil || len(words) < 2 {
		return "", fmt.Errorf("%s --version: %q, %w", path, said, err)
	}
	return words[0] + " " + words[1], nil
}

// A Browser is a process of Chromium.
type Browser struct {
	to  *os.File
	pid int

	writing sync.Mutex
	mu      sync.Mutex
	last    int
	waiting map[int]chan message
	tabs    map[string]func(*message) // who is told of events, by session
	ended   error
}

// message is a command, its answer, or an event.
type message struct {
	ID      int             `json:"id,omitempty"`
	Method  string          `json:"method,omitempty"`
	Session string          `json:"sessionId,omitempty"`
	Params  json.RawMessage `json:"params,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   *struct {
		Message string `json:"message"`
	} `json:"error,omitempty"`
}

// Start starts a browser that ends with the test, or when this process does, because it reads the
// pipes. It opens no port. The test is skipped where there is no Chromium, or fails where
// ONCEQ_BACKENDS names it. No name but the loopback's has an address in it.
func Start(t testing.TB) *Browser {
	t.Helper()
	path := backend.Get(t, "").URL
	in, to, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	from, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", fmt.Sprintf("onceq-chromium-%d-", os.Getpid()))
	if err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	cmd := exec.Command(path, "--headless=new", "--no-sandbox", "--remote-debugging-pipe", "--user-data-dir="+filepath.Join(dir, "profile"),
		"--no-first-run", "--disable-gpu", "--disable-dev-shm-usage", "--disable-extensions", "--disable-sync", "--disable-breakpad",
		"--disable-background-networking", "--disable-component-update", "--disable-default-apps", "--hide-scrollbars",
		"--disable-background-timer-throttling", "--disable-renderer-backgrounding", "--disable-backgrounding-occluded-windows",
		"--force-color-profile=srgb", "--font-render-hinting=none", "--lang=en-US", "--disable-features=Translate,MediaRouter,OptimizationHints",
		"--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost", "about:blank")
	cmd.Env = append(os.Environ(), "TZ=UTC", "HOME="+dir, "XDG_CONFIG_HOME="+dir, "XDG_CACHE_HOME="+dir)
	cmd.ExtraFiles = []*os.File{in, out} // 3 and 4
	cmd.Stderr = &said
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	err = cmd.Start()
	_, _ = in.Close(), out.Close()
	if err != nil {
		t.Fatal(err)
	}
	b := &Browser{to: to, pid: cmd.Process.Pid, waiting: map[int]chan message{}, tabs: map[string]func(*message){}}
	read := make(chan struct{})
	go func() {
		defer close(read)
		b.read(from)
	}()
	t.Cleanup(func() {
		b.mu.Lock()
		ended := b.ended
		b.mu.Unlock()
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // its helpers are in its group
		_ = cmd.Wait()
		_, _ = to.Close(), from.Close()
		<-read
		for range 10 { // a helper may still be writing
			if os.RemoveAll(dir) == nil {
				break
			}
		}
		if ended != nil { // what it says otherwise is noise
			t.Errorf("chromium: it ended before its test, with %v\n%s", ended, said.Bytes())
		}
	})
	return b
}

// read gives each message to who waits for it.
func (b *Browser) read(from *os.File) {
	in := bufio.NewReaderSize(from, 1<<20)
	for {
		text, err := in.ReadBytes(0)
		var m message
		if err == nil {
			err = json.Unmarshal(text[:len(text)-1], &m)
		}
		b.mu.Lock()
		if err != nil {
			b.ended = fmt.Errorf("chromium: %w", err)
			for _, c := range b.waiting {
				close(c)
			}
			b.mu.Unlock()
			return
		}
		c, told := b.waiting[m.ID], b.tabs[m.Session]
		delete(b.waiting, m.ID)
		b.mu.Unlock()
		switch {
		case m.ID != 0 && c != nil:
			c <- m
		case told != nil:
			told(&m)
		}
	}
}

// call sends a command, and waits for its answer.
func (b *Browser) call(session, method string, params, into any) error {
	text, err := json.Marshal(params)
	if err != nil {
		return err
	}
	c := make(chan message, 1)
	b.mu.Lock()
	if b.ended != nil {
		b.mu.Unlock()
		return b.ended
	}
	b.last++
	m := message{ID: b.last, Method: method, Session: session, Params: text}
	b.waiting[m.ID] = c
	b.mu.Unlock()
	if text, err = json.Marshal(m); err != nil {
		return err
	}
	b.writing.Lock()
	_, err = b.to.Write(append(text, 0))
	b.writing.Unlock()
	if err != nil {
		return err
	}
	m, ok := <-c
	switch {
	case !ok:
		return errors.New("chromium: it has ended")
	case m.Error != nil:
		return &refusedError{fmt.Sprintf("chromium: %s: %s", method, m.Error.Message)}
	case into == nil:
		return nil
	}
	return json.Unmarshal(m.Result, into)
}

// A refusedError is what the browser says to a command that it cannot obey, such as one to a
// document that is not there any more.
type refusedError struct{ text string }

func (e *refusedError) Error() string { return e.text }
