package rig

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/must"
)

// processed are the dispositions of a Process call, by index.
type processed struct {
	mu sync.Mutex
	ds map[int]onceq.Disposition
}

// Process runs the deliveries and checks that each was answered once.
func (r *Rig) Process(ctx context.Context, ds ...onceq.Delivery) map[int]onceq.Disposition {
	r.Helper()
	return r.Batch(ctx, onceq.BatchOptions{}, ds...)
}

// Deliveries are one for each "group/key" or "key".
func Deliveries(texts ...string) []onceq.Delivery {
	ds := make([]onceq.Delivery, len(texts))
	for i, s := range texts {
		group, key := "", s
		for j := range s {
			if s[j] == '/' {
				group, key = s[:j], s[j+1:]
			}
		}
		ds[i].Message = &broker.Message{
			ID: fmt.Sprintf("m%d", i), Body: []byte(key), Group: group, Meta: &broker.Meta{ID: "id-" + key, Key: key},
			Receipt: broker.Receipt(fmt.Sprint(i)), Published: time.Now(),
		}
	}
	return ds
}

// Batch runs the deliveries within the bounds, and checks that each was answered once.
func (r *Rig) Batch(ctx context.Context, o onceq.BatchOptions, ds ...onceq.Delivery) map[int]onceq.Disposition {
	r.Helper()
	b := must.Get(r.Cfg.Batches())
	got := processed{ds: make(map[int]onceq.Disposition)}
	b.Process(ctx, ds, &o, func(i int, d onceq.Disposition) {
		got.mu.Lock()
		defer got.mu.Unlock()
		if _, twice := got.ds[i]; twice {
			r.Errorf("delivery %d was answered twice", i)
		}
		got.ds[i] = d
	})
	got.mu.Lock()
	defer got.mu.Unlock()
	if len(got.ds) != len(ds) {
		r.Errorf("%d of %d deliveries were answered: %+v", len(got.ds), len(ds), got.ds)
	}
	return got.ds
}

// Lasting makes the deliveries end d from now.
func Lasting(d time.Duration, texts ...string) []onceq.Delivery {
	ds := Deliveries(texts...)
	for i := range ds {
		ds[i].Until = time.Now().Add(d)
	}
	return ds
}

// outcomesOf are the names of the outcomes, in the deliveries' order.
func outcomesOf(got map[int]onceq.Disposition) []string {
	os := make([]string, len(got))
	for i, d := range got {
		os[i] = string(d.Report.Outcome)
	}
	return os
}

func (r *Rig) WantEnds(got map[int]onceq.Disposition, want ...string) {
	r.Helper()
	if os := outcomesOf(got); !slices.Equal(os, want) {
		r.Errorf("the deliveries ended as %q, want %q", os, want)
	}
}
