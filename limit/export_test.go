package limit

// SetMost has a limiter of Shared keep fewer keys than MaxKeys, because 100,000 take seconds.
func SetMost(l Limiter, n int) { l.(*shared).table.most = n }
