package cli

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"os/exec"
	"runtime"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/onceq/onceq/broker"
)

// This file owns --edit: each body goes through a shell command of the operator's. A replay calls
// it in the goroutine of Main, once for the plan and once for the act; the command runs for the
// first of these, and its answer is kept for the second.

// editBound is how long the command may take for one body.
const editBound = 10 * time.Second

// shownEdits is how many changes a plan shows.
const shownEdits = 3

type edited struct{ key, before, after string }

// editsKept bounds the answers that are kept, in bytes.
const editsKept = 64 << 20

// edits keeps the first changes, to be shown, and the answers by the body that they are for.
type edits struct {
	shown   []edited
	answers map[[sha256.Size]byte][]byte
	kept    int
}

// through is an Edit that runs the command.
func (e *edits) through(ctx context.Context, command string) func(*broker.Outgoing) error {
	e.answers = make(map[[sha256.Size]byte][]byte)
	return func(m *broker.Outgoing) error {
		of := sha256.Sum256(m.Body)
		if b, ok := e.answers[of]; ok {
			e.note(m, b)
			m.Body = bytes.Clone(b)
			return nil
		}
		one, cancel := context.WithTimeout(ctx, editBound)
		defer cancel()
		shell, flag := "sh", "-c"
		if runtime.GOOS == "windows" {
			shell, flag = "cmd", "/c"
		}
		c := exec.CommandContext(one, shell, flag, command)
		c.Stdin, c.WaitDelay = bytes.NewReader(m.Body), time.Second
		var answer, said bytes.Buffer
		c.Stdout, c.Stderr = &answer, &said
		if err := c.Run(); err != nil {
			text := strings.TrimSpace(said.String())
			return fmt.Errorf("--edit: %w: %s", err, firstLine(strings.ToValidUTF8(text[:min(len(text), 200)], "")))
		}
		b := answer.Bytes()
		if !bytes.HasSuffix(m.Body, []byte("\n")) {
			b = bytes.TrimSuffix(b, []byte("\n")) // a filter's own
		}
		if len(b) == 0 && len(m.Body) > 0 {
			return fmt.Errorf("--edit: the command answered nothing")
		}
		e.note(m, b)
		if e.kept += len(b) + len(of); e.kept <= editsKept {
			e.answers[of] = bytes.Clone(b)
		}
		m.Body = bytes.Clone(b)
		return nil
	}
}

// note keeps a change to be shown, if it is one of the first.
func (e *edits) note(m *broker.Outgoing, b []byte) {
	if len(e.shown) == shownEdits || bytes.Equal(b, m.Body) {
		return
	}
	key := ""
	if m.Meta != nil {
		key = m.Meta.Key
	}
	e.shown = append(e.shown, edited{key, short(m.Body), short(b)})
}

func short(b []byte) string {
	if !utf8.Valid(b) {
		return fmt.Sprintf("(%d bytes, not text)", len(b))
	}
	return string(b[:min(len(b), 400)])
}
