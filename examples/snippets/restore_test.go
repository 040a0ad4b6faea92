package snippets

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/broker"
)

// Only what was made between the backup and its restore is refused.
func TestCompared(t *testing.T) {
	backup := time.Now()
	restored := backup.Add(time.Hour)
	ran := 0
	h := compared(backup, restored, func(context.Context, *onceq.Job) error { ran++; return nil })
	for _, m := range []*broker.Meta{nil, {}, {Created: backup.Add(-time.Minute)}, {Created: restored.Add(time.Minute)}} {
		require.NoError(t, h(t.Context(), &onceq.Job{Message: &broker.Message{Meta: m}}))
	}
	require.Error(t, h(t.Context(), &onceq.Job{Message: &broker.Message{Meta: &broker.Meta{Created: backup.Add(time.Minute)}}}))
	require.Equal(t, 4, ran)
}
