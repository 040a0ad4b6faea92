package gocloudpubsub

import (
	"context"
	"time"
)

// Close takes for [Options].ReceiveGrace what gocloud has received and not handed out, gives it
// back, 100 messages at most, sends the acks that gocloud holds, and shuts the subscription down.
// Stop the workers first. All later calls are answered ErrClosed. The topic stays as it is. An
// error tells of acks that failed: their messages come again.
func (b *Broker) Close() error {
	if b.closed() {
		return nil
	}
	b.close()
	defer b.end()
	b.mu.Lock()
	s := b.source // no other comes after it, because replace looks under the lock
	asked := s != nil && s.asked
	b.mu.Unlock()
	if asked {
		ds, _ := b.hoard(context.Background(), s, time.Now().Add(b.o.ReceiveGrace))
		b.giveBack(context.Background(), ds)
	}
	b.mu.Lock()
	b.ledger.clear()
	for o := range b.old {
		b.ending.Go(func() { _ = b.shutdown(o) })
	}
	b.mu.Unlock()
	var err error
	if s != nil {
		err = b.shutdown(s)
	}
	b.ending.Wait()
	return err
}
