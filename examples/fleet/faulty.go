package main

import (
	"errors"
	"os"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/broker"
)

// drilled is what a worker of a drill knows of the fault.
type drilled struct {
	Red   string // the bank answers 500 while this file is there; empty = no drill
	Shaky int
}

var errBank = errors.New("the bank answers 500")

// ask is the bank's answer in a drill.
func (f *drilled) ask(j *onceq.Job) error {
	if f.Red == "" {
		return nil
	}
	if _, err := os.Stat(f.Red); err == nil || j.Attempt <= f.Shaky {
		return errBank
	}
	return nil
}

// set is what a drill's worker has beyond the demo's: it follows the operator soon, and compares
// the payloads of a key.
func (f *drilled) set(c *onceq.ProcessorConfig) {
	if f.Red != "" {
		c.Control.Every = 2 * time.Second
		c.Fingerprint = func(m *broker.Message) []byte { return m.Body }
	}
}
