package onceqpubsub

import (
	"context"
	"encoding/base64"
	"fmt"
	"log/slog"
	"time"

	"gocloud.dev/pubsub/driver"

	"github.com/onceq/onceq/broker"
)

// This file owns receiving: what a delivery becomes in gocloud.

// ReceiveBatch receives up to most messages. ctx is the subscription's own. It ends at Shutdown,
// and where another receive met an error that lasts. Then gocloud hands nothing out any more, so
// what this one brought is given back at once, without an error, which would hide the first one.
func (s *subscription) ReceiveBatch(ctx context.Context, most int) ([]*driver.Message, error) {
	if !s.started() {
		return nil, errShut
	}
	defer s.ended()
	received := time.Now()
	ms, err := s.receiver.Receive(ctx, broker.ReceiveOptions{Max: min(most, s.receives), Wait: s.o.Wait, Visibility: s.o.Visibility})
	if err != nil {
		if ctx.Err() != nil {
			return nil, nil
		}
		if !lasts(err) {
			s.o.Logger.LogAttrs(ctx, slog.LevelWarn, "onceqpubsub: could not receive, it is tried again", slog.Any("error", err))
		}
		return nil, err
	}
	ds := make([]*taken, len(ms))
	s.mu.Lock()
	for i, m := range ms {
		d := &taken{message: m}
		d.lease.Lease, d.lease.Deadline = d, m.Deadline
		s.open[d] = struct{}{}
		ds[i] = d
	}
	s.mu.Unlock()
	if ctx.Err() != nil {
		s.handBack(ds)
		return nil, nil
	}
	out := make([]*driver.Message, len(ds))
	for i, d := range ds {
		if s.beats != nil {
			s.beats.Hold(&d.lease)
			s.beats.SetTimeout(&d.lease, received.Add(s.o.MaxHold))
		} else {
			s.expireAt(d, d.message.Deadline)
		}
		out[i] = s.show(d)
	}
	return out, nil
}

var errShut = fmt.Errorf("onceqpubsub: the subscription was shut down: %w", broker.ErrClosed)

func (s *subscription) started() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.inFlight++
	return true
}

func (s *subscription) ended() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inFlight--
	if s.closed && s.inFlight == 0 {
		close(s.idle)
	}
}

// show makes gocloud's message.
func (s *subscription) show(d *taken) *driver.Message {
	m := d.message
	body, metadata := m.Body, s.form.unpack(m.Attributes)
	if s.o.GoCloudSQS && m.Attributes[peerBase64] != "" {
		if raw, err := base64.StdEncoding.DecodeString(string(body)); err == nil {
			body = raw
		}
	}
	if m.Meta != nil && m.Meta.Dead != nil {
		// A letter carries those here that its queue had no room for.
		for name, value := range s.form.unpack(m.Meta.Dead.Attributes) {
			if _, taken := metadata[name]; !taken {
				if metadata == nil {
					metadata = make(map[string]string)
				}
				metadata[name] = value
			}
		}
	}
	return &driver.Message{LoggableID: m.ID, Body: body, Metadata: metadata, AckID: d, AsFunc: func(target any) bool {
		if ctx, ok := target.(*context.Context); ok && ctx != nil {
			*ctx = s.context(d)
			return true
		}
		return assign(m, target)
	}}
}
