package fan

// SetPart changes how many children are sent before a save, until restore is called.
func SetPart(n int) (restore func()) {
	was := part
	part = n
	return func() { part = was }
}
