package sqlitestore

import (
	"testing"

	"github.com/onceq/onceq/internal/storetest"
)

// TestRules: of rules that many operators edit at once no edit is lost, and an operator who dies
// leaves them whole.
func TestRules(t *testing.T) {
	t.Run("rivals", func(t *testing.T) {
		s, _ := newStore(t, tempFile(t), nil)
		storetest.EditRules(t, s, 8, 100)
	})
	t.Run("deaths", func(t *testing.T) {
		s, _ := newStore(t, tempFile(t), nil)
		storetest.KillOperators(t, s)
	})
}
