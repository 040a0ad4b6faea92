package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// run runs a program in a folder, and returns what it printed.
func run(ctx context.Context, dir string, env []string, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), env...)
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s in %s: %w: %s%s", name, strings.Join(args, " "), dir, err, errs.String(), out)
	}
	return strings.TrimSpace(string(out)), nil
}
