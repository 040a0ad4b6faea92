package main

import (
	"bufio"
	"context"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestMain runs the program itself when a test asks for it, so that the tests need no go command.
func TestMain(m *testing.M) {
	if os.Getenv("ONCEQ_FIRST") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// The program charges each order once, though one was sent twice; run again, it charges nobody.
func TestFirst(t *testing.T) {
	dir := t.TempDir()
	out, logs := runFirst(t, dir)
	require.Len(t, out, 2, "%q", out)
	all := strings.Join(out, "\n")
	require.Contains(t, all, "charge order A-1: 1250 cents, idempotency key ")
	require.Contains(t, all, "charge order B-2: 800 cents, idempotency key ")
	require.Equal(t, 2, strings.Count(logs, " outcome=done "), "%s", logs)

	out, logs = runFirst(t, dir)
	require.Empty(t, out)
	require.Contains(t, logs, " outcome=already-done ")
	require.NotContains(t, logs, " outcome=done ")
}

// runFirst runs the program until its log has a line for each of the three messages, then presses
// ctrl-C.
func runFirst(t *testing.T, dir string) (out []string, logs string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	exe, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(ctx, exe)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "ONCEQ_FIRST=1")
	var stdout, log strings.Builder
	cmd.Stdout = &stdout
	stderr, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())

	lines := bufio.NewScanner(io.TeeReader(stderr, &log))
	for ended := 0; ended < 3 && lines.Scan(); {
		if strings.Contains(lines.Text(), " outcome=") {
			ended++
		}
	}
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	for lines.Scan() { // to the end, as Wait asks
	}
	require.NoError(t, cmd.Wait(), "%s", &log)
	if s := strings.TrimSpace(stdout.String()); s != "" {
		out = strings.Split(s, "\n")
	}
	return out, log.String()
}
