package ops

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"math"
	"os"
	"slices"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
)

// This file owns the rows of a reconciliation: what is expected and what the ledger has, brought
// together by key. Reconcile adds rows and reads them back in order. Rows beyond sortRoom lie in
// one temporary file, in sorted runs, so that the memory does not grow with the input. A rows is
// one goroutine's.

// sortRoom is how many bytes of rows are kept in memory. A test lowers it.
var sortRoom = 16 << 20

// The kinds of rows, in their order within a key.
const (
	rowExpected = 'a'
	rowEffect   = 'b'
)

type rows struct {
	room []byte
	at   [][2]int // where each row lies in room
	file *os.File
	size int64
	runs [][2]int64 // where each run lies in file
}

// begin begins a row. The key comes before its scope, so that all scopes of a key come together;
// neither holds a NUL.
func (s *rows) begin(k dedupe.Key, kind byte) []byte {
	b := append(append(s.room, k.Key...), 0)
	return append(append(b, k.Scope...), 0, kind)
}

// end takes what begin made, with what was appended since.
func (s *rows) end(b []byte) error {
	s.at, s.room = append(s.at, [2]int{len(s.room), len(b)}), b
	if len(b) < sortRoom {
		return nil
	}
	return s.spill()
}

func (s *rows) expected(e *Expected) error {
	b := appendTime(s.begin(e.Key, rowExpected), e.Due)
	b = append(binary.AppendUvarint(b, uint64(len(e.Ref))), e.Ref...)
	if e.Send != nil {
		j, err := json.Marshal(e.Send)
		if err != nil {
			return err
		}
		b = append(b, j...)
	}
	return s.end(b)
}

func (s *rows) effect(e *Effect) error {
	b := appendTime(s.begin(e.Key, rowEffect), e.At)
	b = binary.BigEndian.AppendUint64(b, e.Fence)
	return s.end(append(b, e.ID...))
}

// appendTime appends a time so that rows sort by it; the zero time comes first.
func appendTime(b []byte, t time.Time) []byte {
	n := uint64(0)
	if !t.IsZero() {
		n = uint64(t.UnixMicro()) ^ 1<<63 // negative ones before positive ones
	}
	return binary.BigEndian.AppendUint64(b, n)
}

// sort sorts what is in memory.
func (s *rows) sort() {
	slices.SortFunc(s.at, func(a, b [2]int) int { return bytes.Compare(s.room[a[0]:a[1]], s.room[b[0]:b[1]]) })
}

// spill writes what is in memory as a run.
func (s *rows) spill() (err error) {
	if s.file == nil {
		if s.file, err = os.CreateTemp("", "onceq-reconcile-*"); err != nil {
			return err
		}
		_ = os.Remove(s.file.Name()) // where the system lets go of a file in use, a crash leaves nothing
	}
	s.sort()
	w := bufio.NewWriterSize(s.file, 256<<10)
	from := s.size
	var n [binary.MaxVarintLen64]byte
	for _, at := range s.at {
		head := n[:binary.PutUvarint(n[:], uint64(at[1]-at[0]))]
		if _, err := w.Write(head); err != nil {
			return err
		}
		if _, err := w.Write(s.room[at[0]:at[1]]); err != nil {
			return err
		}
		s.size += int64(len(head) + at[1] - at[0])
	}
	s.runs = append(s.runs, [2]int64{from, s.size})
	s.room, s.at = s.room[:0], s.at[:0]
	return w.Flush()
}

func (s *rows) close() {
	if s.file != nil {
		_ = s.file.Close()
		_ = os.Remove(s.file.Name())
	}
}

// A run is a sorted run that is read: next is its first row, and more brings the one behind it.
type run struct {
	next []byte
	more func() ([]byte, error)
}

// sorted yields all rows in order. A row is the caller's until the next one.
func (s *rows) sorted() iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		var all []*run
		for _, r := range s.runs {
			in := bufio.NewReaderSize(io.NewSectionReader(s.file, r[0], r[1]-r[0]), 64<<10)
			all = append(all, &run{more: func() ([]byte, error) { return readRow(in) }})
		}
		s.sort()
		left := s.at
		all = append(all, &run{more: func() ([]byte, error) {
			if len(left) == 0 {
				return nil, io.EOF
			}
			row := s.room[left[0][0]:left[0][1]]
			left = left[1:]
			return row, nil
		}})
		var bad error
		all = slices.DeleteFunc(all, func(r *run) bool {
			var err error
			if r.next, err = r.more(); err != nil && err != io.EOF {
				bad = err
			}
			return err != nil
		})
		if bad != nil {
			yield(nil, bad)
			return
		}
		slices.SortFunc(all, func(a, b *run) int { return bytes.Compare(a.next, b.next) })
		for len(all) > 0 {
			if !yield(all[0].next, nil) {
				return
			}
			var err error
			switch all[0].next, err = all[0].more(); {
			case err == io.EOF:
				all = all[1:]
			case err != nil:
				yield(nil, err)
				return
			}
			for i := 1; i < len(all) && bytes.Compare(all[i-1].next, all[i].next) > 0; i++ {
				all[i-1], all[i] = all[i], all[i-1]
			}
		}
	}
}

func readRow(in *bufio.Reader) ([]byte, error) {
	n, err := binary.ReadUvarint(in)
	if err != nil {
		return nil, err
	}
	row := make([]byte, n)
	if _, err := io.ReadFull(in, row); err != nil {
		return nil, errors.Join(io.ErrUnexpectedEOF, err)
	}
	return row, nil
}

// A keyGroup is all that the input has of a key.
type keyGroup struct {
	key      dedupe.Key
	expected *Expected // nil = nobody expects it
	repeated int       // how many more rows expect it
	effects  []Effect  // the first keptEffects of them, in the order of time, each id once
	more     int       // effects beyond these
	send     []byte    // the message of the first row that has one, as it lies there
	unlike   bool      // another row has another message
	latest   time.Time // when the last of its rows was due
	stray    string    // a scope in which nobody expects the key, and the ledger has an effect of it
}

// keptEffects bounds what is kept of the effects of one key.
const keptEffects = 64

// byKey yields the rows key by key. A key that is expected knows of effects in scopes where nobody
// expects it.
func (s *rows) byKey() iter.Seq2[*keyGroup, error] {
	return func(yield func(*keyGroup, error) bool) {
		var same []*keyGroup // of one key, in several scopes
		flush := func() bool {
			stray := slices.IndexFunc(same, func(g *keyGroup) bool { return g.expected == nil && len(g.effects) > 0 })
			for _, g := range same {
				if g.expected != nil && stray >= 0 {
					g.stray = same[stray].key.Scope
				}
				if !yield(g, nil) {
					return false
				}
			}
			same = same[:0]
			return true
		}
		for g, err := range s.byScope() {
			if err != nil {
				yield(nil, err)
				return
			}
			if len(same) > 0 && same[0].key.Key != g.key.Key && !flush() {
				return
			}
			same = append(same, g)
		}
		flush()
	}
}

// byScope yields the rows key by key, and the scopes of a key one after another.
func (s *rows) byScope() iter.Seq2[*keyGroup, error] {
	return func(yield func(*keyGroup, error) bool) {
		var g *keyGroup
		var name []byte
		for row, err := range s.sorted() {
			if err != nil {
				yield(nil, err)
				return
			}
			end := bytes.IndexByte(row, 0)
			end += 2 + bytes.IndexByte(row[end+1:], 0)
			if g == nil || !bytes.Equal(name, row[:end]) {
				if g != nil && !yield(g, nil) {
					return
				}
				name = append(name[:0], row[:end]...)
				key, scope, _ := bytes.Cut(row[:end-1], []byte{0})
				g = &keyGroup{key: dedupe.Key{Scope: string(scope), Key: string(key)}}
			}
			if err := g.add(row[end], row[end+1:]); err != nil {
				yield(nil, err)
				return
			}
		}
		if g != nil {
			yield(g, nil)
		}
	}
}

func (g *keyGroup) add(kind byte, b []byte) error {
	at := time.Time{}
	if n := binary.BigEndian.Uint64(b); n != 0 {
		at = time.UnixMicro(int64(n ^ 1<<63)).UTC()
	}
	b = b[8:]
	if kind == rowEffect {
		e := Effect{Key: g.key, At: at, Fence: binary.BigEndian.Uint64(b), ID: string(b[8:])}
		switch {
		case e.ID != "" && slices.ContainsFunc(g.effects, func(x Effect) bool { return x.ID == e.ID }): // one line twice
		case len(g.effects) == keptEffects:
			g.more++
		default:
			g.effects = append(g.effects, e)
		}
		return nil
	}
	n, w := binary.Uvarint(b)
	if w <= 0 || n > math.MaxInt32 || uint64(len(b)-w) < n {
		return io.ErrUnexpectedEOF
	}
	ref, b := string(b[w:w+int(n)]), b[w+int(n):]
	g.unlike = g.unlike || len(b) > 0 && g.send != nil && !bytes.Equal(b, g.send)
	if len(b) > 0 && g.send == nil {
		g.send = bytes.Clone(b)
	}
	if g.latest = at; g.expected != nil { // rows of a key come in the order of their time
		g.repeated++
		return nil
	}
	g.expected = &Expected{Key: g.key, Due: at, Ref: ref}
	if len(b) > 0 {
		g.expected.Send = new(broker.Outgoing)
		return json.Unmarshal(b, g.expected.Send)
	}
	return nil
}
