package sqlitestore

import "github.com/onceq/onceq/dedupe"

var _ dedupe.Sweeper = (*Store)(nil)
