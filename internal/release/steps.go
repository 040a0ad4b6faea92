package main

import (
	"context"
	"path/filepath"
)

// prepare makes each go.mod and go.sum as its tag is to have them.
func (t *tree) prepare(ctx context.Context) error {
	for _, m := range t.modules {
		dir := filepath.Join(t.root, m.dir)
		if m.released() {
			args := []string{"mod", "edit"}
			for _, r := range m.replaced {
				args = append(args, "-dropreplace", r.path)
			}
			for _, p := range m.uses {
				args = append(args, "-require", p+"@"+t.version)
			}
			if _, err := run(ctx, dir, t.goEnv(), "go", append(args, "-fmt")...); err != nil {
				return err
			}
		}
		if _, err := run(ctx, dir, t.goEnv(), "go", "mod", "tidy"); err != nil {
			return err
		}
		if m.released() {
			if err := t.publish(m); err != nil {
				return err
			}
		}
	}
	return nil
}

// reopen brings the replacements back. A command's module never had one.
func (t *tree) reopen(ctx context.Context) error {
	for _, m := range t.modules {
		dir := filepath.Join(t.root, m.dir)
		args := []string{"mod", "edit"}
		for _, r := range m.replaced {
			args = append(args, "-replace", r.path+"="+r.to)
		}
		if _, err := run(ctx, dir, t.goEnv(), "go", append(args, "-fmt")...); err != nil {
			return err
		}
		if _, err := run(ctx, dir, t.goEnv(), "go", "mod", "tidy"); err != nil {
			return err
		}
	}
	return nil
}
