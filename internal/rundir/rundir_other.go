//go:build !unix

package rundir

import (
	"errors"
	"os"
	"time"
)

// Create answers that there are no runs here: each test process looks for itself.
func Create(string) (Run, error) { return Run{}, errors.ErrUnsupported }

// Hold is not called without a run.
func (r Run) Hold() (*os.File, error) { return nil, errors.ErrUnsupported }

// Watch is not called without a run.
func (r Run) Watch() (*os.File, error) { return nil, errors.ErrUnsupported }

// Lock is not called without a run.
func (r Run) Lock(string) (func() error, error) { return nil, errors.ErrUnsupported }

// Remove is not called without a run.
func (r Run) Remove(time.Duration) error { return errors.ErrUnsupported }
