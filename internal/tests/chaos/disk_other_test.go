//go:build unix && !linux

package chaos

import (
	"errors"
	"testing"
)

type disk struct{ dir string }

func newDisk(*testing.T, string, string) (*disk, error) { return nil, errors.New("no tmpfs") }

func (*disk) fill() (int, error) { return 0, errors.ErrUnsupported }

func (*disk) free() error { return errors.ErrUnsupported }
