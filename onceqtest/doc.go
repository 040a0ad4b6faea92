// Package onceqtest helps users to test their handlers: it runs one message through a worker and
// shows the outcome, delivers it again, lets the worker die at a named point, and lets time pass.
//
//	func TestCharge(t *testing.T) {
//		synctest.Test(t, func(t *testing.T) {
//			rig := onceqtest.New(t, onceq.Config{ProcessorConfig: onceq.ProcessorConfig{Handler: charge}})
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
// [Process] is what the rig is made of: wrappers of a store and of brokers that can die together,
// as a worker's process does, and of which each call can fail, lose its reply, be cancelled, come
// late or hang, as a [Fault] says. They serve a test of a whole Worker too, inside a bubble and
// outside, with any driver.
//
//	p := new(onceqtest.Process)
//	p.At(onceqtest.Fault{Op: onceqtest.Settle, N: 2, Kind: onceqtest.LoseReply})
package onceqtest
