// Package chaos kills and stops real worker processes, and is all tests: kill -9, and SIGSTOP until
// the leases are over and others have taken the keys, then SIGCONT, at random moments, while the
// workers take orders from a queue. What the promise says must hold for each order, for every kind
// of effect: see README's promise, and DESIGN.md, section 1.
//
// Beside that each round troubles what the workers stand on: the way to the queue or the store is
// cut, stalls, is slow, or loses answers; PostgreSQL is restarted, or restored from a backup; the
// disk is full; a clock is changed. faults_test.go has the table, and the seed draws from it. A
// fault that the machine does not have is named in the log, and at the end of make test: a full
// disk wants the right to mount one, a restart PostgreSQL's programs, and a changed clock
// libfaketime, which ONCEQ_FAKETIME names where it is not where Debian puts it.
//
// Where the matrix lets each call of one worker go wrong once, here nobody knows what was hit: the
// instruction is the machine's choice. The handlers are as careless as they may be: their effects
// do not look at the context.
//
//	go test ./internal/tests/chaos                    16 rounds, over all modes; 24 in make proof
//	go test ./internal/tests/chaos -rounds 200        make chaos
//	go test ./internal/tests/chaos -seed 17 -run 'TestChaos/^sqlite-tx$'
package chaos
