package fakeserver

// List is a list of items that go in at its end and out at any place. It is ready to use, and
// belongs to its owner alone. An item has a Place for each list that it may be in; T is a pointer
// to it, or what else has a nil.
type List[T any] struct{ first, last *Place[T] }

// Place is an item's place in a list.
type Place[T any] struct {
	item       T
	prev, next *Place[T]
	listed     bool
}

// Append puts an item at the end. It must not be in a list by this place.
func (l *List[T]) Append(p *Place[T], item T) {
	*p = Place[T]{item: item, prev: l.last, listed: true}
	if l.last == nil {
		l.first = p
	} else {
		l.last.next = p
	}
	l.last = p
}

// Remove takes out the item whose place it is, if it is there.
func (l *List[T]) Remove(p *Place[T]) {
	if !p.listed {
		return
	}
	if p.prev == nil {
		l.first = p.next
	} else {
		p.prev.next = p.next
	}
	if p.next == nil {
		l.last = p.prev
	} else {
		p.next.prev = p.prev
	}
	*p = Place[T]{}
}

// First is the item at the beginning; nil = the list is empty.
func (l *List[T]) First() T { return l.first.get() }

// Next is the item after the one whose place it is; nil = there is none.
func (p *Place[T]) Next() T { return p.next.get() }

// Listed reports whether the item is in a list.
func (p *Place[T]) Listed() bool { return p.listed }

func (p *Place[T]) get() (item T) {
	if p != nil {
		item = p.item
	}
	return item
}
