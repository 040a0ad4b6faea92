package arch

import (
	"maps"
	"path"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/onceq/onceq/internal/must"
)

// checks are the walls, by the name of their subtest.
var checks = map[string]func(*tree) []string{
	"layers":   checkLayers,
	"confined": checkConfined,
	"cycles":   checkCycles,
	"methods":  checkMethods,
	"verbs":    checkVerbs,
	"bans":     checkBans,
	"init":     checkInit,
	"panics":   checkPanics,
	"length":   checkLength,
	"steps":    checkSteps,
	"examples": checkExamples,
	"docs":     checkDocs,
	"modules":  checkModules,
}

func TestWalls(t *testing.T) {
	tr := ours(t)
	for _, pattern := range idle(tr) {
		t.Logf("no package yet for the pattern %q", pattern)
	}
	for _, name := range slices.Sorted(maps.Keys(checks)) {
		t.Run(name, func(t *testing.T) {
			reports := checks[name](tr)
			slices.Sort(reports)
			for _, bad := range reports {
				t.Error(bad)
			}
		})
	}
}

// TestWallsFall gives every wall small trees: bad ones with what it must say, and good ones
// that come close, where want is empty.
func TestWallsFall(t *testing.T) {
	const doc = "// Package x is documented.\n"
	for _, c := range []struct {
		name, check string
		files       map[string]string
		want        string
	}{
		{"files in a circle", "cycles", map[string]string{
			"broker/brokertest/x/a.go": `package x; func A() { B() }`,
			"broker/brokertest/x/b.go": `package x; type c struct{}; func (c) m() { A() }; func B() {}`,
		}, "broker/brokertest/x: 2 files know each other in a circle, at most 1 may: a.go b.go"},
		{"files in a line", "cycles", map[string]string{
			"broker/brokertest/x/a.go":      `package x; func A() { B() }`,
			"broker/brokertest/x/b.go":      `package x; type c struct{ n int }; func B() int { return c{}.n }`,
			"broker/brokertest/x/a_test.go": `package x; func C() { A() }`,
		}, ""},
		{"a field closes the circle", "cycles", map[string]string{
			"broker/brokertest/x/a.go": `package x; type T struct{ n int }; func (t *T) A() { b(t) }`,
			"broker/brokertest/x/b.go": `package x; func b(t *T) { t.n++ }`,
		}, "broker/brokertest/x: 2 files know"},
		{"one name, two meanings", "methods", map[string]string{
			"broker/x/a.go": `package x; type a struct{}; type b[T any] struct{}; func (a) end() {}; func (*b[T]) end() {}`,
		}, "broker/x: the method name end is on a and b"},
		{"an interface asks for the name", "methods", map[string]string{
			"broker/x/a.go": `package x; type a struct{}; type b struct{}; func (a) end() {}; func (*b) end() {}`,
			"broker/y/a.go": `package y; type ender interface{ end() }`,
		}, ""},
		{"a verb that answers nothing", "verbs", map[string]string{
			"broker/x/a.go": `package x; type a struct{}; func (a) goesWithout(n int) error { return nil }`,
		}, "broker/x/a.go:1: the method goesWithout"},
		{"a question, a plural, and a test", "verbs", map[string]string{
			"broker/x/a.go":      `package x; type a struct{}; func (a) suits() bool { return true }; func (a) keys() []int { return nil }; func (a) pass() {}`,
			"broker/x/a_test.go": `package x; func (a) learns() {}`,
		}, ""},
		{"the standard library is free", "layers", map[string]string{
			"broker/a.go": `package broker; import ("context"; "encoding/json")`,
		}, ""},
		{"broker imports dedupe", "layers", map[string]string{
			"broker/a.go": `package broker; import "m.test/m/dedupe"`,
			"dedupe/a.go": `package dedupe`,
		}, "broker: must not import dedupe (broker -> dedupe)"},
		{"broker reaches dedupe through a helper", "layers", map[string]string{
			"broker/a.go":     `package broker; import "m.test/m/internal/x"`,
			"internal/x/a.go": `package x; import "m.test/m/dedupe"`,
			"dedupe/a.go":     `package dedupe`,
		}, "(broker -> internal/x -> dedupe)"},
		{"dedupe imports broker", "layers", map[string]string{
			"dedupe/a.go": `package dedupe; import "m.test/m/broker"`,
			"broker/a.go": `package broker`,
		}, "dedupe: must not import broker"},
		{"a store imports the root", "layers", map[string]string{
			"dedupe/sqlitestore/a.go": `package sqlitestore; import "m.test/m"`,
			"a.go":                    `package m`,
		}, "dedupe/sqlitestore: must not import ."},
		{"visibility may know the broker", "layers", map[string]string{
			"visibility/a.go": `package visibility; import "m.test/m/broker"`,
			"broker/a.go":     `package broker`,
		}, ""},
		{"visibility imports the root", "layers", map[string]string{
			"visibility/a.go": `package visibility; import "m.test/m"`,
			"a.go":            `package m`,
		}, "visibility: must not import ."},
		{"the root imports a driver", "layers", map[string]string{
			"a.go":                    `package m; import "m.test/m/adapters/membroker"`,
			"adapters/membroker/a.go": `package membroker`,
		}, ".: must not import adapters/membroker"},
		{"an adapter imports its SDK and the core", "layers", map[string]string{
			"adapters/awssqs/a.go": `package awssqs; import ("github.com/aws/aws-sdk-go-v2/service/sqs"; "m.test/m")`,
			"a.go":                 `package m`,
		}, ""},
		{"an adapter imports a store", "layers", map[string]string{
			"adapters/awssqs/a.go":    `package awssqs; import "m.test/m/dedupe/memstore"`,
			"dedupe/memstore/a.go":    `package memstore`,
			"adapters/awssqs/b_go.md": ``,
		}, "adapters/awssqs: must not import dedupe/memstore"},
		{"the memory driver imports another module", "layers", map[string]string{
			"adapters/membroker/a.go": `package membroker; import "github.com/google/uuid"`,
		}, "adapters/membroker: must not import github.com/google/uuid"},
		{"a build tag hides nothing", "layers", map[string]string{
			"dlq/a.go": "//go:build never\n\npackage dlq; import \"github.com/google/uuid\"",
		}, "dlq: must not import github.com/google/uuid"},
		{"testify in a core test", "layers", map[string]string{
			"dlq/a_test.go": `package dlq_test; import "github.com/stretchr/testify/require"`,
		}, "dlq: its tests must not import github.com/stretchr/testify/require"},
		{"a core test reaches another module", "layers", map[string]string{
			"dlq/a_test.go":        `package dlq_test; import "m.test/m/adapters/awssqs"`,
			"adapters/awssqs/a.go": `package awssqs; import "github.com/aws/aws-sdk-go-v2/service/sqs"`,
		}, "dlq: its tests must not import github.com/aws/aws-sdk-go-v2/service/sqs (dlq -> adapters/awssqs ->"},
		{"core tests import each other's packages", "layers", map[string]string{
			"broker/a_test.go":        `package broker_test; import "m.test/m/adapters/membroker"`,
			"adapters/membroker/a.go": `package membroker; import "m.test/m/broker"`,
			"broker/a.go":             `package broker`,
		}, ""},
		{"the SQLite driver in the store's tests", "layers", map[string]string{
			"dedupe/sqlitestore/a_test.go": `package sqlitestore; import _ "modernc.org/sqlite"`,
		}, ""},
		{"the SQLite driver in the store", "layers", map[string]string{
			"dedupe/sqlitestore/a.go": `package sqlitestore; import _ "modernc.org/sqlite"`,
		}, "dedupe/sqlitestore: must not import modernc.org/sqlite"},
		{"the suites know their own contract only", "layers", map[string]string{
			"broker/brokertest/a.go": `package brokertest; import "m.test/m/broker"`,
			"broker/a.go":            `package broker`,
			"dedupe/dedupetest/a.go": `package dedupetest; import ("m.test/m/dedupe"; "m.test/m/broker")`,
			"dedupe/a.go":            `package dedupe`,
		}, "dedupe/dedupetest: must not import broker"},
		{"the stores import their database's client", "layers", map[string]string{
			"dedupe/pgstore/a.go":     `package pgstore; import "github.com/jackc/pgx/v5/pgconn"`,
			"dedupe/dynamostore/a.go": `package dynamostore; import "github.com/aws/aws-sdk-go-v2/service/dynamodb"`,
		}, ""},
		{"a store imports another database's client", "layers", map[string]string{
			"dedupe/pgstore/a.go": `package pgstore; import "github.com/aws/aws-sdk-go-v2/service/dynamodb"`,
		}, "dedupe/pgstore: must not import github.com/aws"},
		{"a store imports a queue's client", "layers", map[string]string{
			"dedupe/dynamostore/a.go": `package dynamostore; import "cloud.google.com/go/pubsub/v2"`,
		}, "dedupe/dynamostore: must not import cloud.google.com"},
		{"users' test helpers take the core", "layers", map[string]string{
			"onceqtest/a.go":          `package onceqtest; import ("m.test/m/adapters/membroker"; "m.test/m/dedupe/memstore")`,
			"adapters/membroker/a.go": `package membroker`,
			"dedupe/memstore/a.go":    `package memstore`,
		}, ""},
		{"users' test helpers take an SDK", "layers", map[string]string{
			"onceqtest/a.go": `package onceqtest; import "github.com/stretchr/testify/require"`,
		}, "onceqtest: must not import github.com/stretchr"},
		{"programs import everything", "layers", map[string]string{
			"examples/x/a.go":      `package main; import ("modernc.org/sqlite"; "m.test/m/adapters/awssqs")`,
			"cmd/x/a.go":           `package main; import ("modernc.org/sqlite"; "m.test/m/adapters/awssqs")`,
			"localstack/a.go":      `package localstack; import ("modernc.org/sqlite"; "m.test/m/adapters/awssqs")`,
			"adapters/awssqs/a.go": `package awssqs`,
		}, ""},
		{"an adapter imports a program", "layers", map[string]string{
			"adapters/awssqs/a.go": `package awssqs; import "m.test/m/localstack"`,
			"localstack/a.go":      `package localstack`,
		}, "adapters/awssqs: must not import localstack"},
		{"a package that the table does not know", "layers", map[string]string{
			"util/a.go": `package util`,
		}, "util: belongs to no layer"},
		{"a module that is apart is its own affair", "layers", map[string]string{
			"internal/bench/go.mod": "module m.test/m/internal/bench",
			"internal/bench/a.go":   `package bench; import "github.com/riverqueue/river"`,
		}, ""},

		{"testcontainers outside localstack", "confined", map[string]string{
			"dedupe/pgstore/a_test.go": `package pgstore; import "github.com/testcontainers/testcontainers-go/modules/postgres"`,
		}, "Docker is one package's concern"},
		{"testcontainers in localstack", "confined", map[string]string{
			"localstack/a.go": `package localstack; import "github.com/testcontainers/testcontainers-go"`,
		}, ""},
		{"testing in code", "confined", map[string]string{
			"dlq/a.go": `package dlq; import "testing/synctest"`,
		}, "dlq/a.go: must not import testing/synctest"},
		{"a suite in code", "confined", map[string]string{
			"a.go": `package m; import "m.test/m/broker/brokertest"`,
		}, "a.go: must not import broker/brokertest"},
		{"testing in tests and suites", "confined", map[string]string{
			"dlq/a_test.go":             `package dlq; import "testing"`,
			"broker/brokertest/a.go":    `package brokertest; import "testing"`,
			"adapters/awssqs/b_test.go": `package awssqs; import "m.test/m/broker/brokertest"`,
		}, ""},
		{"cgo", "confined", map[string]string{
			"adapters/awssqs/a.go": `package awssqs; import "C"`,
		}, "must not import C"},
		{"a dot import", "confined", map[string]string{
			"dlq/a.go": `package dlq; import . "time"`,
		}, `imports time under the name "."`},

		{"a sleep in a test", "bans", map[string]string{
			"dlq/a_test.go": `package dlq; import "time"; func f() { time.Sleep(1) }`,
		}, "dlq/a_test.go:1: time.Sleep"},
		{"a sleep under another name, not called", "bans", map[string]string{
			"a.go": `package m; import clock "time"; var f = clock.Sleep`,
		}, "a.go:1: time.Sleep"},
		{"a sleep in an example program", "bans", map[string]string{
			"examples/x/a.go": `package main; import "time"; func f() { time.Sleep(1) }`,
		}, ""},
		{"another Sleep", "bans", map[string]string{
			"a.go": `package m; type t struct{}; func (t) Sleep() {}; func f(time t) { time.Sleep() }`,
		}, ""},
		{"a print in a library", "bans", map[string]string{
			"dlq/a.go": `package dlq; import "fmt"; func f() { fmt.Println(fmt.Sprint("x")) }`,
		}, "fmt.Println: standard output"},
		{"a builtin print", "bans", map[string]string{
			"dlq/a.go": `package dlq; func f() { println("x") }`,
		}, "println: standard output"},
		{"the global logger", "bans", map[string]string{
			"adapters/awssqs/a.go": `package awssqs; import "log"; func f() { log.Fatal("x") }`,
		}, "log.Fatal: no global logger"},
		{"prints in programs and tests", "bans", map[string]string{
			"cmd/x/a.go":    `package main; import ("fmt"; "log"); func f() { fmt.Println("x"); log.Print("x") }`,
			"dlq/a_test.go": `package dlq; import "fmt"; func Example() { fmt.Println("x") }`,
		}, ""},
		{"slog is not log", "bans", map[string]string{
			"dlq/a.go": `package dlq; import "log/slog"; func f(log *slog.Logger) { log.Info("x") }`,
		}, ""},

		{"an init in the core", "init", map[string]string{
			"dedupe/memstore/a.go": `package memstore; func init() {}`,
		}, "dedupe/memstore/a.go:1: func init"},
		{"a method named init, and an init in a program", "init", map[string]string{
			"dlq/a.go":   `package dlq; type t struct{}; func (t) init() {}`,
			"cmd/x/a.go": `package main; func init() {}`,
		}, ""},

		{"a panic", "panics", map[string]string{
			"dlq/a.go": `package dlq; func f() { panic("x") }`,
		}, "dlq/a.go:1: panic"},
		{"an explained panic", "panics", map[string]string{
			"dlq/a.go": "package dlq\nfunc f() {\n\t// invariant: the heap\n\t// is never empty here\n\tpanic(\"x\")\n}\nfunc g() {\n\tpanic(1) // invariant: g is private\n}",
		}, ""},
		{"a panic explained too far away", "panics", map[string]string{
			"dlq/a.go": "package dlq\n// invariant: above the wrong line\nfunc f() {\n\tpanic(\"x\")\n}",
		}, "dlq/a.go:4: panic"},
		{"a panic passed on", "panics", map[string]string{
			"dlq/a.go": `package dlq; func f() { defer func() { if v := recover(); v != nil { panic(v) } }() }`,
		}, ""},
		{"a panic beside a recover", "panics", map[string]string{
			"dlq/a.go": `package dlq; func f(v any) { defer func() { v := recover(); _ = v }(); panic(v) }`,
		}, "dlq/a.go:1: panic"},

		{"a long file", "length", map[string]string{
			"internal/bench/go.mod": "module m.test/m/internal/bench",
			"internal/bench/a.go":   "package bench\n" + strings.Repeat("\n", maxLines),
		}, "internal/bench/a.go: 601 lines, at most 600"},
		{"a file just short enough", "length", map[string]string{
			"a.go": "package m\n" + strings.Repeat("\n", maxLines-1),
		}, ""},

		{"a maximum stored as it was loaded", "steps", map[string]string{
			"dlq/a_test.go": `package dlq; func f() { r.most.Store(max(r.most.Load(), now.Add(1))) }`,
		}, "dlq/a_test.go:1: r.most.Store follows from r.most.Load"},
		{"a maximum stored where it is larger", "steps", map[string]string{
			"dlq/a_test.go": `package dlq; func f() { if n := now.Add(1); n > most.Load() { most.Store(n) } }`,
		}, "most.Store follows from most.Load"},
		{"a maximum stored in a loop", "steps", map[string]string{
			"dlq/a_test.go": `package dlq; func f() { for now := at.Add(1); now > most.Load(); { most.Store(now) } }`,
		}, "most.Store follows from most.Load"},
		{"a maximum read before", "steps", map[string]string{
			"dlq/a_test.go": `package dlq; func f() { old := most.Load(); if true { if n > old { most.Store(n) } } }`,
		}, "most.Store follows from most.Load"},
		{"a sum in two steps, in code", "steps", map[string]string{
			"dlq/a.go": `package dlq; func f() { n.Store(n.Load() + 1) }`,
		}, "dlq/a.go:1: n.Store follows from n.Load"},
		{"steps that lose nothing", "steps", map[string]string{
			"dlq/a_test.go": `package dlq; func f() {
				for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {}
				if left.Load() > 0 { done.Store(true) }
				if old := is.Load(); old == nil { is.Store(&x) }
				a.Store(b.Load())
				if k := kept.Load(); k == nil { k = f(k); kept.Store(k) }
			}`,
		}, ""},

		{"an example that is not run", "examples", map[string]string{
			"dlq/a_test.go": "package dlq\nfunc ExampleQueue() {\n}",
		}, "ExampleQueue has no"},
		{"examples that are run", "examples", map[string]string{
			"dlq/a_test.go": "package dlq\nfunc ExampleQueue() {\n\tf()\n\t// Output: x\n}\nfunc ExampleQueue_none() {\n\tf()\n\t// Output:\n}",
		}, ""},

		{"another module's package", "layers", map[string]string{
			"localstack/go.mod": "module m.test/m/localstack",
			"localstack/a.go":   `package localstack`,
			"dlq/a.go":          `package dlq; import "m.test/m/localstack"`,
		}, "dlq: must not import localstack"},
		{"modules that keep the rules", "modules", withModules(map[string]string{
			"localstack/a_test.go":     `package localstack; import "m.test/m/broker"`,
			"broker/a.go":              `package broker`,
			"internal/bench/a_test.go": `package bench; import "m.test/m"`,
			"a.go":                     `package m`,
		}), ""},
		{"the library's test reaches another module", "modules", withModules(map[string]string{
			"broker/a_test.go": `package broker; import "m.test/m/localstack"`,
			"localstack/a.go":  `package localstack`,
		}), "broker: belongs to the module ., which must not use localstack"},
		{"a module requires one that it may not", "modules", withModules(map[string]string{
			"localstack/go.mod": "module m.test/m/localstack\nrequire m.test/m/examples v0.0.0\n",
		}), "localstack/go.mod: must not require examples"},
		{"Docker beyond localstack", "modules", withModules(map[string]string{
			"go.mod": "module m.test/m\nrequire (\n\tgithub.com/moby/moby/client v0.5.0 // indirect\n)\n",
		}), "go.mod: must not require github.com/moby/moby/client"},
		{"Docker where the examples use localstack", "modules", withModules(map[string]string{
			"examples/go.mod": "module m.test/m/examples\nrequire m.test/m/localstack v0.0.0\nrequire github.com/moby/moby/client v0.5.0 // indirect\n",
		}), ""},
		{"Docker named by the examples", "modules", withModules(map[string]string{
			"examples/go.mod": "module m.test/m/examples\nrequire m.test/m/localstack v0.0.0\nrequire github.com/moby/moby/client v0.5.0\n",
		}), "examples/go.mod: must not require github.com/moby/moby/client"},
		{"a replacement of others' code", "modules", withModules(map[string]string{
			"localstack/go.mod": "module m.test/m/localstack\nreplace github.com/moby/moby/client => ../moby\n",
		}), "localstack/go.mod: replaces github.com/moby/moby/client"},
		{"a replacement that leads out of the tree", "modules", withModules(map[string]string{
			"localstack/go.mod": "module m.test/m/localstack\nreplace m.test/m => ../../m\n",
		}), "localstack/go.mod: replaces m.test/m => ../../m, which is not ."},
		{"a module that the table does not know", "modules", withModules(map[string]string{
			"dlq/go.mod": "module m.test/m/dlq",
		}), "dlq/go.mod: add the module"},
		{"a module that is gone", "modules", func() map[string]string {
			files := withModules(map[string]string{})
			delete(files, "examples/go.mod")
			return files
		}(), "examples: the table in internal/arch has a module that is not there"},
		{"a module of another name", "modules", withModules(map[string]string{
			"localstack/go.mod": "module m.test/localstack",
		}), "localstack/go.mod: the module's name is not m.test/m/localstack"},

		{"no package comment", "docs", map[string]string{
			"dlq/a.go": "package dlq",
		}, "dlq: the package has no doc comment"},
		{"an undocumented function", "docs", map[string]string{
			"dlq/a.go": doc + "package dlq\nfunc F() {}",
		}, "dlq/a.go:3: F has no doc comment"},
		{"an undocumented method of a generic type", "docs", map[string]string{
			"dlq/a.go": doc + "package dlq\n// T is.\ntype T[A any] struct{}\nfunc (*T[A]) M() {}",
		}, "dlq/a.go:5: M has no doc comment"},
		{"an undocumented type", "docs", map[string]string{
			"dlq/a.go": doc + "package dlq\ntype T int",
		}, "T has no doc comment"},
		{"an undocumented constant", "docs", map[string]string{
			"dlq/a.go": doc + "package dlq\nconst (\n\tA = 1 // A is.\n\tB = 2\n)",
		}, "dlq/a.go:5: B has no doc comment"},
		{"an undocumented option", "docs", map[string]string{
			"dlq/a.go": doc + "package dlq\n// Options are.\ntype Options struct {\n\tA int // A is.\n\tB int\n\tc int\n}",
		}, "dlq/a.go:6: Options.B has no doc comment"},
		{"what needs no comment", "docs", map[string]string{
			"dlq/a.go":          doc + "package dlq\n// Things.\nvar (\n\tA = 1\n\tB = 2\n)\ntype t int\nfunc (t) M() {}\nfunc f() {}",
			"internal/x/a.go":   "package x\nfunc F() {}",
			"cmd/x/a.go":        "package main\nfunc F() {}",
			"localstack/x/a.go": "package main\nfunc F() {}",
			"dlq/a_test.go":     "package dlq\nfunc TestX() {}",
		}, ""},
	} {
		t.Run(c.check+"/"+c.name, func(t *testing.T) {
			root := fstest.MapFS{"go.mod": {Data: []byte("module m.test/m\n\ngo 1.26\n")}}
			for name, src := range c.files {
				root[name] = &fstest.MapFile{Data: []byte(src)}
			}
			tr := must.Get(load(root))
			got := checks[c.check](tr)
			switch {
			case c.want == "" && len(got) > 0:
				t.Errorf("a tree that keeps the rule is reported: %q", got)
			case c.want != "" && (len(got) != 1 || !strings.Contains(got[0], c.want)):
				t.Errorf("got %q, want one report with %q", got, c.want)
			}
		})
	}
}

// withModules adds a go.mod for each module of the table that the files lack.
func withModules(files map[string]string) map[string]string {
	for _, m := range modules {
		if name := path.Join(m.dir, "go.mod"); files[name] == "" {
			files[name] = "module " + path.Join("m.test/m", m.dir) + "\n"
		}
	}
	return files
}

func TestIdlePatternsAreNamed(t *testing.T) {
	tr := must.Get(load(fstest.MapFS{
		"go.mod":      {Data: []byte("module m.test/m")},
		"broker/a.go": {Data: []byte("package broker")},
	}))
	got := idle(tr)
	if slices.Contains(got, "broker") || slices.Contains(got, "broker/...") || !slices.Contains(got, "dedupe") {
		t.Errorf("idle patterns: %q", got)
	}
}

func TestLoadRefusesWhatItCannotRead(t *testing.T) {
	for name, root := range map[string]fstest.MapFS{
		"no go.mod":      {"a.go": {Data: []byte("package m")}},
		"no module line": {"go.mod": {Data: []byte("go 1.26")}},
		"broken source":  {"go.mod": {Data: []byte("module m")}, "a.go": {Data: []byte("package")}},
	} {
		if _, err := load(root); err == nil {
			t.Errorf("%s: loaded", name)
		}
	}
}

// TestMostLines: a tree that grows is noticed.
func TestMostLines(t *testing.T) {
	n := 0
	for _, p := range ours(t).pkgs {
		for _, f := range p.files {
			n += f.lines
		}
	}
	if n > mostLines {
		t.Errorf("the tree has %d lines of Go, at most %d", n, mostLines)
	}
}
