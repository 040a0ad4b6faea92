// Package rig is what the tests of the root share: a queue, a store and a worker in virtual time,
// all of them watched and made to fail.
package rig
