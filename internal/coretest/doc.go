// Package coretest has no code. Below it stand the tests of the root's public API, in eight
// packages by topic, so that they run side by side and the root's list stays short. Examples and
// tests of what is not exported stay in the root. The eight share package rig, and package worlds
// plays random worlds for them and for internal/tests.
//
// The coverage of the root and its engine is that of all of them together:
//
//	go test -coverpkg=.,./internal/engine,./internal/verdict . ./internal/coretest/...
package coretest
