package cli

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/csv"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"iter"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/cmd/onceq/internal/out"
	"github.com/onceq/onceq/cmd/onceq/internal/settings"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/ops"
)

// This file owns what reconcile reads: NDJSON, or CSV with a header. A line that makes no sense
// ends the command with its number and the column's name, before the store is asked. The reading
// runs in the goroutine of Main.

// The columns that the two inputs may have.
var (
	expectColumns = []string{"key", "due", "ref", "body", "type", "scope", "group"}
	effectColumns = []string{"key", "id", "at", "fence", "type", "scope"}
)

// A table is an input: rows of named cells.
type table struct {
	flag    string
	columns []string
	in      io.ReadCloser
	sum     hash.Hash
	scope   func(scope, typ string) (string, string, error)
	utc     bool
}

// table opens an input.
func (a *app) table(ctx context.Context, flag, file string, columns []string) (*table, error) {
	t := &table{flag: flag, columns: columns, sum: sha256.New(), utc: a.utc}
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return nil, exit(exitUsage, "%s: %w", flag, err)
		}
		t.in = f
		return t, nil
	}
	t.in = io.NopCloser(&interruptible{ctx, a.io.In})
	return t, nil
}

// digest is that of the input, once it was read.
func (t *table) digest() string { return "sha256:" + hex.EncodeToString(t.sum.Sum(nil)) }

// interruptible is an input whose reader ctrl-C does not wait for.
type interruptible struct {
	ctx context.Context
	r   io.Reader
}

func (i *interruptible) Read(p []byte) (int, error) {
	b, err := input(i.ctx, func() ([]byte, error) {
		b := make([]byte, len(p))
		n, err := i.r.Read(b)
		return b[:n], err
	})
	return copy(p, b), err
}

// cells are those of a line, by column; a cell that is not there is absent.
type cells map[string]string

// read reads the rows, until do answers an error.
func (t *table) read(do func(line int, c cells) error) error {
	in := bufio.NewReaderSize(io.TeeReader(t.in, t.sum), 64<<10)
	for {
		b, err := in.Peek(1)
		switch {
		case err == io.EOF:
			// What should have written it has failed, rather: that must not pass for a good night.
			return exit(exitUsage, "%s: it is empty; a list that has no line has a header (key)", t.flag)
		case err != nil:
			return fmt.Errorf("%s: %w", t.flag, err)
		case b[0] == '{':
			return t.ndjson(in, do)
		case strings.IndexByte(" \t\r\n", b[0]) < 0:
			return t.csv(in, do)
		}
		_, _ = in.Discard(1)
	}
}

// bad is an error of a line, and of one of its columns.
func (t *table) bad(line int, column, format string, args ...any) error {
	if column != "" {
		column += ": "
	}
	return exit(exitUsage, "%s line %d: %s%w", t.flag, line, column, fmt.Errorf(format, args...))
}

// keepsCR gives each CR within quotes a second one, because a csv.Reader takes one from the end of
// each line, and a body has to stay what it was.
type keepsCR struct {
	r      *bufio.Reader
	quoted bool
	owes   bool
}

func (k *keepsCR) Read(p []byte) (n int, err error) {
	for n < len(p) && (n == 0 || k.owes || k.r.Buffered() > 0) {
		b := byte('\r')
		if k.owes {
			k.owes = false
		} else if b, err = k.r.ReadByte(); err != nil {
			break
		} else if b == '\r' && k.quoted {
			next, _ := k.r.Peek(1)
			k.owes = len(next) > 0 && next[0] == '\n'
		}
		if b == '"' {
			k.quoted = !k.quoted
		}
		p[n] = b
		n++
	}
	if n > 0 {
		err = nil
	}
	return n, err
}

func (t *table) csv(in io.Reader, do func(int, cells) error) error {
	r := csv.NewReader(&keepsCR{r: bufio.NewReader(in)})
	r.ReuseRecord = true
	head, err := r.Read()
	if err != nil {
		return exit(exitUsage, "%s: %w", t.flag, err)
	}
	head = slices.Clone(head)
	head[0] = strings.TrimPrefix(head[0], "\ufeff") // as a spreadsheet writes it
	for i, name := range head {
		if !slices.Contains(t.columns, name) {
			return t.bad(1, "", "there is no column %q; there are %s%s", name, strings.Join(t.columns, ", "), settings.DidYouMean(name, t.columns))
		}
		if slices.Contains(head[:i], name) {
			return t.bad(1, name, "the column is there twice")
		}
	}
	if !slices.Contains(head, "key") {
		return t.bad(1, "key", "the header has no such column; it has %s", strings.Join(head, ", "))
	}
	for {
		fields, err := r.Read()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return exit(exitUsage, "%s: %w", t.flag, err) // with its line
		}
		c := cells{}
		for i, v := range fields {
			if v != "" {
				c[head[i]] = v
			}
		}
		line, _ := r.FieldPos(0)
		if err := do(line, c); err != nil {
			return err
		}
	}
}

// maxLine is more than a line with a body of 1 MiB, escaped.
const maxLine = 16 << 20

func (t *table) ndjson(in io.Reader, do func(int, cells) error) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, maxLine)
	n := 1
	for ; lines.Scan(); n++ {
		text := bytes.TrimSpace(lines.Bytes())
		if len(text) == 0 {
			continue
		}
		var members map[string]json.RawMessage
		if err := json.Unmarshal(text, &members); err != nil {
			return t.bad(n, "", "%w", err)
		}
		c := cells{}
		for name, v := range members {
			if !slices.Contains(t.columns, name) {
				return t.bad(n, "", "there is no column %q; there are %s%s", name, strings.Join(t.columns, ", "), settings.DidYouMean(name, t.columns))
			}
			if string(v) == "null" {
				continue
			}
			s := string(v) // a number, or a body that is an object
			if v[0] == '"' {
				_ = json.Unmarshal(v, &s) // it was read as a string before
			} else if name != "body" && name != "fence" {
				return t.bad(n, name, "%s is not a string", out.Cut(s, 40))
			}
			c[name] = s
		}
		if err := do(n, c); err != nil {
			return err
		}
	}
	if err := lines.Err(); err != nil {
		if errors.Is(err, bufio.ErrTooLong) {
			return t.bad(n, "", "more than %s", out.Bytes(maxLine))
		}
		return fmt.Errorf("%s line %d: %w", t.flag, n, err)
	}
	return nil
}

// times are the forms of a time beside RFC 3339; psql writes the first.
var times = [...]string{"2006-01-02 15:04:05.999999999Z07", "2006-01-02 15:04:05.999999999Z07:00", "2006-01-02 15:04:05.999999999", "2006-01-02T15:04:05.999999999", "2006-01-02"}

// time reads a cell; the zero time where there is none.
func (t *table) time(line int, c cells, column string) (time.Time, error) {
	text, ok := c[column]
	if !ok {
		return time.Time{}, nil
	}
	zone := time.Local
	if t.utc {
		zone = time.UTC
	}
	at, err := time.Parse(time.RFC3339, text)
	for i := 0; err != nil && i < len(times); i++ {
		at, err = time.ParseInLocation(times[i], text, zone)
	}
	if err != nil || at.Year() < 1 || at.Year() > 9999 {
		return at, t.bad(line, column, "%q is no time; want 2026-11-22T03:00:00Z", out.Cut(text, 40))
	}
	return at, nil
}

// key reads the record's key of a line, and the job's type.
func (t *table) key(line int, c cells) (k dedupe.Key, typ string, err error) {
	if k.Key = c["key"]; k.Key == "" {
		return k, "", t.bad(line, "key", "it is empty")
	}
	if k.Scope, typ, err = t.scope(c["scope"], c["type"]); err != nil {
		return k, "", t.bad(line, "type", "%w", err)
	}
	if err := k.Validate(); err != nil {
		return k, "", t.bad(line, "key", "%w", err)
	}
	return k, typ, nil
}

// readExpected yields the jobs that should have run.
func (t *table) readExpected() iter.Seq2[ops.Expected, error] {
	return each(t, func(line int, c cells) (x ops.Expected, err error) {
		x.Ref = c["ref"]
		var typ string
		if x.Key, typ, err = t.key(line, c); err != nil {
			return x, err
		}
		if body, ok := c["body"]; ok {
			x.Send = &broker.Outgoing{Body: []byte(body), Group: c["group"], Meta: &broker.Meta{Type: typ}}
		}
		x.Due, err = t.time(line, c, "due")
		return x, err
	})
}

// readEffects yields the lines of the ledger.
func (t *table) readEffects() iter.Seq2[ops.Effect, error] {
	return each(t, func(line int, c cells) (x ops.Effect, err error) {
		x.ID = c["id"]
		if x.Key, _, err = t.key(line, c); err != nil {
			return x, err
		}
		if text, ok := c["fence"]; ok {
			if x.Fence, err = strconv.ParseUint(text, 10, 64); err != nil {
				return x, t.bad(line, "fence", "%q is no number", out.Cut(text, 40))
			}
		}
		x.At, err = t.time(line, c, "at")
		return x, err
	})
}

func each[V any](t *table, of func(line int, c cells) (V, error)) iter.Seq2[V, error] {
	return func(yield func(V, error) bool) {
		stop := errors.New("the reader has stopped")
		err := t.read(func(line int, c cells) error {
			v, err := of(line, c)
			if err != nil {
				return err
			}
			if !yield(v, nil) {
				return stop
			}
			return nil
		})
		if err != nil && err != stop {
			var none V
			yield(none, err)
		}
	}
}

// scoping is how a line's scope is found: the line names it, or its type does, or all lines are of
// one. scopes are those of the queue, and typed those of types that are not a scope, a ':' and the
// type, as the workers' cards have them.
func scoping(flag string, scopes []string, typed map[string]string) func(scope, typ string) (string, string, error) {
	var own []string // without those that only types have a place in
	for _, s := range scopes {
		if !slices.ContainsFunc(scopes, func(x string) bool { return strings.HasPrefix(x, s+":") }) {
			own = append(own, s)
		}
	}
	if flag != "" {
		own = []string{flag}
	}
	return func(scope, typ string) (string, string, error) {
		if own := typed[typ]; scope == "" && own != "" && (flag == "" || flag == own) {
			scope = own
		}
		if scope == "" && typ != "" {
			for _, s := range scopes {
				if strings.HasSuffix(s, ":"+typ) && (flag == "" || flag == s || strings.HasPrefix(s, flag+":")) {
					scope = s
					break
				}
			}
		}
		switch {
		case scope != "":
		case len(own) == 1 && (typ == "" || flag != "" || !strings.Contains(own[0], ":")):
			scope = own[0]
		case len(own) == 1:
			return "", "", fmt.Errorf("no scope of the queue is of the type %q; it has %s: give a column scope", typ, own[0])
		case len(own) == 0:
			return "", "", errors.New("no worker's card and no profile names a scope: give --scope, or a column scope")
		default:
			return "", "", fmt.Errorf("the queue has several scopes (%s): give --scope, or a column type or scope", strings.Join(own, ", "))
		}
		if _, of, ok := strings.Cut(scope, ":"); ok && typ == "" {
			typ = of
		}
		return scope, typ, nil
	}
}
