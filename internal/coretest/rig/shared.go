package rig

import "github.com/onceq/onceq/internal/rig"

// What the root's tests share with those of other packages.
type (
	Store  = rig.Store
	Queue  = rig.Queue
	Logged = rig.Log
)

const Scope = rig.Scope

var (
	ErrBoom   = rig.ErrBoom
	Goroutine = rig.Goroutine
	Outages   = rig.Outages
	Key       = rig.Key
	NewBroker = rig.NewBroker
	NewStore  = rig.NewStore
	NewQueue  = rig.NewQueue
	Bads      = rig.Bads
	Waits     = rig.Waits
	Pass      = rig.Pass
	Takes     = rig.Takes
	Works     = rig.Works
)
