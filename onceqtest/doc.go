// Package onceqtest helps users to test their handlers. A [Rig] can do these things:
//
//   - run one message through a worker, and show the outcome;
//   - deliver it again;
//   - let the worker die at a named point;
//   - let time pass.
//
// A test of a job that was cut off:
//
//	func TestCharge(t *testing.T) {
//		synctest.Test(t, func(t *testing.T) {
//			rig := onceqtest.New(t, onceq.ProcessorConfig{Handler: charge}, nil)
//			rig.At(onceqtest.Fault{Op: onceqtest.Settle, Kind: onceqtest.CrashBefore})
//			rig.Send(broker.Outgoing{Body: []byte(`{"order":"o-1"}`)})
//			rig.Deliver()                 // the worker dies after the handler
//			rig.Advance(time.Minute)      // its leases run out
//			got := rig.Deliver()          // another worker takes over
//			…
//		})
//	}
//
// Inside testing/synctest time costs nothing; outside, Advance waits.
//
// The rig is made of [Process], which wraps a store and brokers. The wrappers can die together, as
// a worker's process does. Each of their calls can fail, lose its reply, be cancelled, come late or
// hang, as a [Fault] says. They serve a test of a whole Worker too, inside a bubble and outside,
// with any driver.
//
//	p := new(onceqtest.Process)
//	p.At(onceqtest.Fault{Op: onceqtest.Settle, N: 2, Kind: onceqtest.LoseReply})
package onceqtest
