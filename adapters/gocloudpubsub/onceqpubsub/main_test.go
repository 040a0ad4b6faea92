package onceqpubsub_test

import (
	"testing"

	"github.com/onceq/onceq/adapters/gocloudpubsub/internal/gocloudtest"
)

func TestMain(m *testing.M) { gocloudtest.Main(m) }
