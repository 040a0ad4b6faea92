package cli

import (
	"errors"
	"os"
)

// sentBy is how many letters a plan has sent whose --max goes beyond its list. A replay that died
// goes on from there when it is run again. It stands beside the plan's file, which has a checksum,
// and has a byte for each letter, so that whatever a killed process has written counts.
type sentBy struct {
	file *os.File
	n    int
}

func openSent(plan string) (*sentBy, error) {
	f, err := os.OpenFile(plan+".sent", os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, exit(exitUsage, "--plan: %w", err)
	}
	info, err := f.Stat()
	if err != nil {
		return nil, errors.Join(exit(exitUsage, "--plan: %w", err), f.Close())
	}
	return &sentBy{f, int(info.Size())}, nil
}

// another counts a letter. Where that cannot be written, the act goes on: it is under way.
func (s *sentBy) another() { _, _ = s.file.WriteString(".") }
