package pgstore

import (
	"testing"

	"github.com/onceq/onceq/internal/storetest"
)

// TestRules: of rules that many operators edit at once no edit is lost, and an operator who dies
// leaves them whole.
func TestRules(t *testing.T) {
	pool := openPool(t)
	t.Run("rivals", func(t *testing.T) { storetest.EditRules(t, newStore(t, pool, newTable()), 8, 100) })
	t.Run("deaths", func(t *testing.T) { storetest.KillOperators(t, newStore(t, pool, newTable())) })
}
