package rig

import (
	"bytes"
	"testing"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dlq"
)

func ByBody(c *Setup) {
	c.Key = func(m *broker.Message) (dedupe.Key, error) { return dedupe.Key{Key: string(m.Body)}, nil }
}

func Typed(typ, key string) broker.Outgoing {
	m := Message(key)
	m.Meta.Type = typ
	return m
}

func SynctestMux(t *testing.T, m *onceq.Mux, f func(r *Rig), options ...Option) {
	t.Helper()
	Bubble(t, nil, f, append([]Option{func(r *Rig) { r.Cfg.Handler = m }}, options...)...)
}

var SigningKeys = dlq.Keys{bytes.Repeat([]byte("k"), 32), bytes.Repeat([]byte("l"), 32)}

func Signs(r *Rig) { r.Cfg.LetterKeys = SigningKeys }
