// Package settings reads the command's configuration: the file with its profiles, and the URLs of
// queues and stores. It opens nothing but the file.
//
// The package cli calls it once at the start. A File does not change after Load, so nothing is
// locked.
package settings

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// This file owns the configuration file: where it is looked for, how it is read, and what is said
// of its mistakes, each with its line. Load makes the whole, and nothing changes it after.

// The variables of the environment that the command itself reads.
const (
	EnvConfig  = "ONCEQ_CONFIG"
	EnvProfile = "ONCEQ_PROFILE"
	EnvStore   = "ONCEQ_STORE"
	EnvQueue   = "ONCEQ_QUEUE"
	EnvDead    = "ONCEQ_DEAD"
	EnvBy      = "ONCEQ_BY"
)

// A File is a configuration file. The zero File has no profile.
type File struct {
	Path string // empty = none was found
	// Here says that the path leads through the folder that the command was started in, so that it
	// is another file in another folder.
	Here     bool
	Default  string
	Profiles map[string]*Profile
}

// A Profile is a place to work on.
type Profile struct {
	Name string
	// Protect asks for the profile's name before a destructive act.
	Protect bool
	Store   string
	Queues  map[string]*Queue
	// Order is the names of Queues as the file has them.
	Order []string
	// Links are templates for people: {key}, {trace}, {job}.
	Links map[string]string
	// LetterKeys are the workers' keys that sign dead letters.
	LetterKeys [][]byte
}

// A Queue is one of a profile's.
type Queue struct {
	Name, URL, Dead string
	// Known is the queue's name as its workers have it; empty: the URL's own.
	Known       string
	Scopes      []string
	MaxAttempts int
	Retention   time.Duration
}

// Env looks a variable of the environment up.
type Env func(name string) (string, bool)

// Load reads the file that the environment names, else the user's own. A file that nothing names
// and that is not there is an empty File.
//
// Where nothing names a file, and the folder has one, Load refuses with ErrUnasked.
func Load(env Env, home string) (*File, error) {
	if path, ok := env(EnvConfig); ok && path != "" {
		f, err := read(path, env)
		if f != nil {
			f.Here = !filepath.IsAbs(path)
		}
		return f, err
	}
	own := ownPath(env, home)
	if _, err := os.Lstat(unasked); err == nil {
		if _, err := os.Lstat(own); err != nil {
			own = os.DevNull
		}
		return nil, fmt.Errorf("%w: set %s=./%s to use it, or %s=%s to work without it",
			ErrUnasked, EnvConfig, unasked, EnvConfig, own)
	}
	if own == "" {
		return &File{}, nil
	}
	f, err := read(own, env)
	if errors.Is(err, fs.ErrNotExist) {
		return &File{}, nil
	}
	return f, err
}

// unasked is what a configuration is called in a folder.
const unasked = "onceq.yaml"

// ErrUnasked means that the folder has a file that nobody asked for. A file says where acts go, and
// with them the passwords of the environment. So one that came with the folder, from who made it or
// in a checkout, is read only when its user says so. It is not passed over either, because then the
// acts of who relies on it would go elsewhere.
var ErrUnasked = errors.New("this folder has a file " + unasked + ", which would say where your acts and passwords go")

// ownPath is where the user has the file; empty = nowhere.
func ownPath(env Env, home string) string {
	if dir, ok := env("XDG_CONFIG_HOME"); ok && filepath.IsAbs(dir) {
		return filepath.Join(dir, "onceq", "config.yaml")
	}
	if filepath.IsAbs(home) {
		return filepath.Join(home, ".config", "onceq", "config.yaml")
	}
	return ""
}

// largest is more than any file of people has.
const largest = 1 << 20

func read(path string, env Env) (*File, error) {
	in, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	text, err := io.ReadAll(io.LimitReader(in, largest+1))
	if err != nil {
		return nil, err
	}
	if len(text) > largest {
		return nil, fmt.Errorf("%s: it is larger than %d bytes, so it is no configuration", path, largest)
	}
	info, err := in.Stat()
	if err != nil {
		return nil, err
	}
	mode := info.Mode().Perm()
	if who := writers(info); who != "" {
		return nil, fmt.Errorf("%s: %s may write the file (mode %04o), and so say where your acts go: chmod go-w %s", path, who, mode, path)
	}
	f, secret, err := parse(path, text, env)
	if err != nil {
		return nil, err
	}
	if secret.line > 0 && mode&0o077 != 0 && filepath.Separator == '/' {
		return nil, fmt.Errorf("%s:%d: a %s stands here, and others may read the file (mode %04o): chmod 600 %s, or write env:NAME",
			path, secret.line, secret.what, mode, path)
	}
	return f, nil
}

// A secret is what others must not read; line 0 = there is none.
type secret struct {
	what string
	line int
}

// parse also answers the first secret that stands in the file itself.
func parse(path string, text []byte, env Env) (f *File, _ secret, err error) {
	f = &File{Path: path, Profiles: map[string]*Profile{}}
	var doc, more yaml.Node
	docs := yaml.NewDecoder(bytes.NewReader(text))
	if err := docs.Decode(&doc); err != nil {
		if errors.Is(err, io.EOF) { // empty, or comments alone
			return f, secret{}, nil
		}
		return nil, secret{}, fmt.Errorf("%s: %w", path, err)
	}
	switch err := docs.Decode(&more); {
	case err == nil:
		return nil, secret{}, fmt.Errorf("%s:%d: a second document begins here: one file is one configuration", path, more.Line)
	case !errors.Is(err, io.EOF):
		return nil, secret{}, fmt.Errorf("%s: %w", path, err)
	}
	r := &reader{path: path, env: env}
	if len(doc.Content) == 1 {
		r.file(doc.Content[0], f)
	}
	if r.err == nil && f.Default != "" && f.Profiles[f.Default] == nil {
		r.fail(r.defaultAt, "there is no profile %q%s", f.Default, DidYouMean(f.Default, names(f.Profiles)))
	}
	return f, r.secret, r.err
}

// A reader goes through the file's nodes. It keeps the first error.
type reader struct {
	path      string
	env       Env
	err       error
	secret    secret
	defaultAt *yaml.Node
}

func (r *reader) fail(n *yaml.Node, format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf("%s:%d: %s", r.path, n.Line, fmt.Sprintf(format, args...))
	}
}

// fields calls for each field of a mapping what the table has for its name.
func (r *reader) fields(n *yaml.Node, what string, table map[string]func(*yaml.Node)) {
	seen := map[string]bool{}
	r.pairs(n, what, func(name, value *yaml.Node) {
		do := table[name.Value]
		switch {
		case do == nil:
			r.fail(name, "%s: unknown field%s", name.Value, DidYouMean(name.Value, names(table)))
		case seen[name.Value]:
			r.fail(name, "%s stands here twice", name.Value)
		case value.Tag == "!!null": // the field's name alone
		default:
			do(value)
		}
		seen[name.Value] = true
	})
}

func (r *reader) pairs(n *yaml.Node, what string, each func(name, value *yaml.Node)) {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if n.Kind != yaml.MappingNode {
		r.fail(n, "%s: want names with values", what)
		return
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		each(n.Content[i], n.Content[i+1])
	}
}

func (r *reader) file(n *yaml.Node, f *File) {
	r.fields(n, "the file", map[string]func(*yaml.Node){
		"default": func(n *yaml.Node) { r.defaultAt, f.Default = n, r.text(n) },
		"profiles": func(n *yaml.Node) {
			r.pairs(n, "profiles", func(name, value *yaml.Node) {
				if f.Profiles[name.Value] != nil {
					r.fail(name, "profile %s stands here twice", name.Value)
					return
				}
				f.Profiles[name.Value] = r.profile(name.Value, value)
			})
		},
	})
}

func (r *reader) profile(name string, n *yaml.Node) *Profile {
	p := &Profile{Name: name, Queues: map[string]*Queue{}, Links: map[string]string{}}
	r.fields(n, "profile "+name, map[string]func(*yaml.Node){
		"protect": func(n *yaml.Node) { p.Protect = r.flag(n) },
		"store": func(n *yaml.Node) {
			p.Store = r.place(n)
			r.check(n, func(s string) error { _, err := ParseStore(s); return err }, p.Store)
		},
		"queues": func(n *yaml.Node) {
			r.pairs(n, "queues", func(name, value *yaml.Node) {
				if p.Queues[name.Value] != nil {
					r.fail(name, "queue %s stands here twice", name.Value)
					return
				}
				p.Queues[name.Value] = r.queue(name.Value, value)
				p.Order = append(p.Order, name.Value)
			})
		},
		"links": func(n *yaml.Node) {
			r.pairs(n, "links", func(name, value *yaml.Node) { p.Links[name.Value] = r.text(value) })
		},
		"letter_keys": func(n *yaml.Node) {
			for _, n := range r.entries(n) {
				s := r.text(n)
				if len(s) < 32 {
					r.fail(n, "letter_keys: a key of %d bytes, want 32 or more", len(s))
				}
				r.hide(n, "letter key")
				p.LetterKeys = append(p.LetterKeys, []byte(s))
			}
		},
	})
	return p
}

func (r *reader) queue(name string, n *yaml.Node) *Queue {
	q := &Queue{Name: name}
	check := func(s string) error { _, err := ParseQueue(s); return err }
	if n.Kind == yaml.ScalarNode && n.Tag != "!!null" { // orders: sqs://orders
		q.URL = r.place(n)
		r.check(n, check, q.URL)
		return q
	}
	r.fields(n, "queue "+name, map[string]func(*yaml.Node){
		"url":   func(n *yaml.Node) { q.URL = r.place(n); r.check(n, check, q.URL) },
		"dead":  func(n *yaml.Node) { q.Dead = r.place(n); r.check(n, check, q.Dead) },
		"known": func(n *yaml.Node) { q.Known = r.text(n) },
		"scopes": func(n *yaml.Node) {
			q.Scopes = r.list(n)
		},
		"max_attempts": func(n *yaml.Node) {
			v, err := strconv.Atoi(r.text(n))
			if err != nil || v < 1 || v > 1000 {
				r.fail(n, "max_attempts: %q is not a number from 1 to 1000", n.Value)
			}
			q.MaxAttempts = v
		},
		"retention": func(n *yaml.Node) {
			d, err := ParseDuration(r.text(n))
			if err != nil {
				r.fail(n, "retention: %v", err)
			}
			q.Retention = d
		},
	})
	if q.URL == "" {
		r.fail(n, "queue %s has no url", name)
	}
	return q
}

func (r *reader) check(n *yaml.Node, valid func(string) error, s string) {
	if r.err != nil {
		return
	}
	if err := valid(s); err != nil {
		r.fail(n, "%v", err)
	}
}

// named is the variable that a scalar stands for: env:NAME.
func named(n *yaml.Node) (variable string, ok bool) {
	return strings.CutPrefix(aliased(n).Value, "env:")
}

func aliased(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

// text is a scalar; env:NAME stands for the variable's value.
func (r *reader) text(n *yaml.Node) string {
	if n = aliased(n); n.Kind != yaml.ScalarNode {
		r.fail(n, "want a single value here")
		return ""
	}
	name, ok := named(n)
	if !ok {
		return n.Value
	}
	v, ok := r.env(name)
	if !ok || v == "" {
		r.fail(n, "the environment has no %s", name)
	}
	return v
}

// place is a URL, which may hold a password.
func (r *reader) place(n *yaml.Node) string {
	s := r.text(n)
	if HasPassword(s) {
		r.hide(n, "password")
	}
	return s
}

// hide remembers a secret that the file has in itself.
func (r *reader) hide(n *yaml.Node, what string) {
	if _, ok := named(n); !ok && r.secret.line == 0 {
		r.secret = secret{what, n.Line}
	}
}

func (r *reader) flag(n *yaml.Node) bool {
	var b bool
	if err := n.Decode(&b); err != nil {
		r.fail(n, "%q is neither true nor false", n.Value)
	}
	return b
}

func (r *reader) list(n *yaml.Node) (l []string) {
	for _, e := range r.entries(n) {
		l = append(l, r.text(e))
	}
	return l
}

// entries are those of a list; a single value is a list of one.
func (r *reader) entries(n *yaml.Node) []*yaml.Node {
	switch n = aliased(n); n.Kind {
	case yaml.ScalarNode:
		return []*yaml.Node{n}
	case yaml.SequenceNode:
		return n.Content
	}
	r.fail(n, "want a list here")
	return nil
}

// Pick is the profile of that name, else the file's default, else its only one. nil where the file
// has none and none is asked for.
func (f *File) Pick(name string) (*Profile, error) {
	if name == "" {
		name = f.Default
	}
	all := names(f.Profiles)
	switch {
	case name == "" && len(all) == 0:
		return nil, nil
	case name == "" && len(all) == 1:
		return f.Profiles[all[0]], nil
	case name == "":
		return nil, fmt.Errorf("%s has the profiles %s and no default: choose one with -p", f.Path, strings.Join(all, ", "))
	case f.Profiles[name] != nil:
		return f.Profiles[name], nil
	case f.Path == "":
		return nil, fmt.Errorf("profile %q: there is no configuration file", name)
	}
	return nil, fmt.Errorf("%s: there is no profile %q%s", f.Path, name, DidYouMean(name, all))
}

// Find is the queue of that name. What has a scheme is a queue of its own.
func (p *Profile) Find(name string) (*Queue, error) {
	if strings.Contains(name, ":/") {
		u, err := ParseQueue(name)
		if err != nil {
			return nil, err
		}
		return &Queue{Name: u.Name, URL: name}, nil
	}
	if p != nil && p.Queues[name] != nil {
		return p.Queues[name], nil
	}
	if p == nil || len(p.Queues) == 0 {
		return nil, fmt.Errorf("queue %q: no profile names it; give its URL, such as sqs://%s", name, name)
	}
	return nil, fmt.Errorf("profile %s has no queue %q%s", p.Name, name, DidYouMean(name, p.Order))
}

func names[V any](m map[string]V) []string {
	l := make([]string, 0, len(m))
	for name := range m {
		l = append(l, name)
	}
	slices.Sort(l)
	return l
}
