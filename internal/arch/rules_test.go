package arch

import "slices"

// A pattern names packages by their folder: "broker" is that one, "broker/..." that one and
// all below it, "." the root package, "..." every one. The same holds for import paths.

// sqliteDriver is the pure Go SQLite that tests and examples register; the store itself
// takes any database/sql driver.
const sqliteDriver = "modernc.org/sqlite"

// core is what every user links: the standard library and this module, nothing else.
var core = []string{
	".", "broker/...", "dedupe", "dedupe/machine", "dedupe/dedupetest", "dedupe/memstore",
	"visibility", "dlq", "control", "limit", "schedule", "ops", "onceqtest", "adapters/membroker", "fan", "internal/...",
}

// programs are not imported by anything: they may print, and import what they show.
var programs = []string{"examples/...", "cmd/...", "adapters/gcppubsub/cmd/...", "localstack/...", "internal/tests/...", "internal/release", "internal/mutants", "internal/soak", "internal/speeds", "internal/weight"}

// testSupport is code for tests that is not itself in _test.go files.
var testSupport = []string{
	"broker/brokertest",
	"dedupe/dedupetest",
	"onceqtest",
	"internal/faulty",
	"internal/suite",
	"internal/storetest",
	"internal/coretest/rig",
	"internal/coretest/worlds",
	"internal/rig",
	"internal/must",
	"internal/proof",
	"internal/testserver/...",
	"internal/chromium",
	"internal/fakeserver/...",
	"sqsfake",
	"adapters/gcppubsub/pubsubfake",
	"dedupe/firestorestore/firestorefake",
	"localstack/...",
	"internal/tests/...",
	"adapters/gocloudpubsub/internal/gocloudtest",
	"internal/pgkit/pgtest",
	"internal/tablequeue/tabletest",
}

// apart are modules whose packages keep no rule but the length of a file: they compare onceq
// with others, or test with another's tools what we ship.
var apart = []string{"internal/bench", "internal/tools/promrules"}

// A module says what its go.mod may hold. A module that the table does not know is reported,
// and so is one that it knows in vain.
type module struct {
	dir string
	// uses are the folders of our modules that it may require.
	uses []string
	// brings are modules of others that no other module of ours requires.
	brings []string
	why    string
}

var modules = []module{
	{dir: ".", why: "who takes the library takes nothing that starts servers or runs programs"},
	{dir: "adapters/gcppubsub", uses: []string{"."}, why: "Google's clients and gRPC reach those alone who use Pub/Sub"},
	{
		dir: "adapters/gocloudpubsub", uses: []string{".", "adapters/gcppubsub"},
		why: "gocloud.dev requires the SDKs of three clouds, which nobody else shall see",
	},
	{dir: "dedupe/firestorestore", uses: []string{"."}, why: "Google's clients and gRPC reach those alone who keep their keys in Firestore"},
	{dir: "adapters/otelonceq", uses: []string{"."}, why: "OpenTelemetry reaches those alone who use it"},
	{dir: "adapters/watermillonceq", uses: []string{"."}, why: "Watermill reaches those alone who use it"},
	{
		dir: "cmd/onceq", uses: []string{".", "adapters/gcppubsub", "dedupe/firestorestore"},
		why: "the command brings all drivers and a library for commands, which no library's user shall see",
	},
	{
		dir: "localstack", uses: []string{"."},
		brings: []string{"github.com/testcontainers/...", "github.com/moby/...", "github.com/docker/..."},
		why:    "Docker's client reaches those alone who ask for it",
	},
	{
		dir: "internal/tests", uses: []string{".", "adapters/gcppubsub", "dedupe/firestorestore", "adapters/gocloudpubsub", "adapters/watermillonceq", "localstack"},
		why: "what needs the whole house is tested there",
	},
	{
		dir: "examples", uses: []string{".", "adapters/gcppubsub", "dedupe/firestorestore", "adapters/gocloudpubsub", "adapters/otelonceq", "adapters/watermillonceq", "localstack"},
		why: "examples show the parts together, also with programs of gocloud and of Watermill",
	},
	{
		dir: "internal/bench", uses: []string{".", "adapters/gcppubsub", "dedupe/firestorestore", "adapters/gocloudpubsub", "adapters/watermillonceq"},
		why: "it brings what onceq is compared with",
	},
	{dir: "internal/tools", why: "a tool's libraries are nobody else's"},
	{dir: "internal/tools/promrules", why: "Prometheus tests the alerts, and nobody else takes it"},
	{dir: "internal/tools/lint", why: "a tool's libraries are nobody else's"},
}

// A layer says what its packages may reach, directly or through others. The first layer
// whose pattern fits a package is its layer; a package without one is reported.
type layer struct {
	pkgs string
	// may lists the packages of this module that the layer's code may reach, besides itself
	// and the core's internal helpers; others lists import paths of other modules.
	may, others []string
	// testOthers lists what tests may reach besides, in other modules. Within this module a
	// test may import anything, as long as that brings in no other module.
	testOthers []string
	why        string
}

var layers = []layer{
	{
		pkgs: "broker/brokertest", may: []string{"broker"},
		why: "a driver's author takes the suite alone: the contract and the standard library",
	},
	{
		pkgs: "broker",
		why:  "the contract of drivers stands at the bottom; it and dedupe never know each other",
	},
	{
		pkgs: "dedupe/dedupetest", may: []string{"dedupe", "dedupe/machine"},
		why: "a store's author takes the suite alone: the contract and the standard library",
	},
	{
		pkgs: "dedupe/memstore", may: []string{"dedupe", "dedupe/machine"},
		why: "the stores know the store contract, never queues",
	},
	{
		pkgs: "dedupe/sqlitestore", may: []string{"dedupe", "dedupe/machine"}, testOthers: []string{sqliteDriver},
		why: "the user picks the SQLite driver; the store speaks database/sql",
	},
	{
		pkgs: "dedupe/pgstore", may: []string{"dedupe", "dedupe/machine"}, others: []string{"github.com/jackc/pgx/v5/..."},
		why: "a store imports its own database's client and the store contract",
	},
	{
		pkgs: "dedupe/firestorestore", may: []string{"dedupe", "dedupe/machine"},
		others:     []string{"cloud.google.com/go/firestore/...", "github.com/googleapis/gax-go/...", "google.golang.org/..."},
		testOthers: []string{"cloud.google.com/go/firestore/...", "google.golang.org/..."},
		why:        "a store imports its own SDK and the contract",
	},
	{
		pkgs:       "dedupe/firestorestore/firestorefake",
		others:     []string{"cloud.google.com/go/firestore/apiv1/firestorepb", "google.golang.org/..."},
		testOthers: []string{"cloud.google.com/go/firestore/...", "google.golang.org/..."},
		why:        "it serves the messages of Firestore's API over gRPC, and knows no client",
	},
	{
		pkgs: "dedupe/dynamostore", may: []string{"dedupe", "dedupe/machine"}, others: []string{"github.com/aws/..."},
		why: "a store imports its own database's client and the store contract",
	},
	{
		pkgs: "dedupe/machine", may: []string{"dedupe"},
		why: "the tables are made of the contract's words; those who use a store do without them",
	},
	{
		pkgs: "dedupe",
		why:  "the contract of stores stands at the bottom; it and broker never know each other",
	},
	{
		pkgs: "visibility", may: []string{"broker"},
		why: "it renews leases of any kind, so it knows no store and no processor",
	},
	{
		pkgs: "dlq", may: []string{"broker", "visibility"},
		why: "dead letters are messages: whoever reads them needs a broker, not a store",
	},
	{
		pkgs: "control", may: []string{"dedupe"},
		why: "operators and workers talk through a store, whatever the queue",
	},
	{
		pkgs: ".", may: []string{"broker", "dedupe", "visibility", "dlq", "control"},
		why: "the processor joins the contracts; which queue and which store is the user's choice",
	},
	{
		pkgs: "limit", may: []string{".", "control", "broker", "dedupe", "visibility", "dlq"},
		why: "a limiter is a middleware: it knows jobs and the store's contract, and no queue",
	},
	{
		pkgs: "fan", may: []string{".", "broker", "dedupe", "visibility", "dlq", "control"},
		why: "a fan is made of what any handler may call: steps, sends and reads of keys",
	},
	{
		pkgs: "schedule", may: []string{".", "control", "broker", "dedupe", "visibility", "dlq"},
		why: "it sends jobs and claims instants, whatever the queue and the store are",
	},
	{
		pkgs: "ops", may: []string{".", "schedule", "control", "broker", "dedupe", "visibility", "dlq"},
		why: "tools of any kind are made of it: it knows the contracts, and neither a driver nor a terminal",
	},
	{
		pkgs: "onceqtest", may: core,
		why: "users' unit tests run in memory, without an SDK",
	},
	{
		pkgs: "adapters/membroker", may: []string{"broker"},
		why: "the memory queue is a driver like any other, and part of the core",
	},
	{
		pkgs: "adapters/httponceq", may: []string{".", "broker", "dedupe", "visibility", "dlq", "control"},
		why: "a server that answers once needs net/http and the core, nothing else",
	},
	{
		pkgs: "adapters/healthonceq", may: []string{".", "broker", "dedupe", "visibility", "dlq", "control"},
		why: "probes need net/http and the core, whatever the queue and the store are",
	},
	{
		pkgs: "adapters/webonceq", may: []string{".", "ops", "control", "broker", "dedupe", "visibility", "dlq", "schedule"},
		why: "the operator's page needs net/http and what operators' tools are made of, whatever the queue and the store are",
	},
	{
		pkgs: "adapters/gcppubsub/pubsubpush", may: []string{".", "broker", "dedupe", "visibility", "dlq", "control"},
		why: "a push service needs net/http and the core; its dead letters' topic brings the client",
	},
	{
		pkgs: "adapters/gcppubsub/pubsubfake",
		others: []string{
			"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb", "cloud.google.com/go/iam/apiv1/iampb",
			"google.golang.org/grpc/...", "google.golang.org/protobuf/...", "google.golang.org/genproto/googleapis/...",
		},
		testOthers: []string{"cloud.google.com/go/...", "google.golang.org/..."},
		why:        "it serves the messages of Pub/Sub's API over gRPC, and knows no client",
	},
	{
		pkgs: "adapters/gcppubsub/cmd/...", may: []string{"..."}, others: []string{"..."}, testOthers: []string{"..."},
		why: "the fake as a program, for users who test in other languages",
	},
	{
		pkgs: "adapters/gocloudpubsub/onceqpubsub/urls",
		may: []string{
			".", "broker", "dedupe", "visibility", "dlq", "control",
			"adapters/gocloudpubsub/onceqpubsub", "adapters/gocloudpubsub/internal/wellknown",
			"adapters/awssqs", "adapters/awssqs/internal/leansqs", "adapters/gcppubsub", "adapters/membroker",
		},
		others: []string{"..."}, testOthers: []string{"..."},
		why: "a URL names the queue's kind, so its openers know the drivers, which the rest of its module does not",
	},
	{
		pkgs: "adapters/gocloudpubsub/internal/gocloudtest", may: []string{"..."},
		others: []string{"..."},
		why:    "the tests of both directions play in it",
	},
	{
		pkgs: "adapters/gocloudpubsub/...", may: []string{".", "broker", "dedupe", "visibility", "dlq", "control", "adapters/gocloudpubsub/internal/wellknown"},
		others: []string{"..."}, testOthers: []string{"..."},
		why: "two directions that know nothing of each other but the words beneath both",
	},
	{
		pkgs: "adapters/sqlitebroker", may: []string{"broker", "dedupe", "dedupe/machine", "dedupe/sqlitestore"}, testOthers: []string{sqliteDriver},
		why: "queue and store of one file share one writer, and the user picks the SQLite driver",
	},
	{
		pkgs: "adapters/awssqs", may: []string{"adapters/awssqs/internal/leansqs", ".", "broker", "dedupe", "visibility", "dlq", "control"},
		others: []string{"..."}, testOthers: []string{"..."},
		why: "its lean transport, which knows the SDK alone, is a package of its own",
	},
	{
		pkgs: "adapters/...", may: []string{".", "broker", "dedupe", "visibility", "dlq", "control"},
		others: []string{"..."}, testOthers: []string{"..."},
		why: "an adapter imports its own SDK and the core, never a store or another adapter",
	},
	{
		pkgs: "internal/testserver/testpg", others: []string{"github.com/jackc/pgx/v5/..."},
		why: "it makes databases for the tests of a store, and starts no server",
	},
	{
		pkgs: "internal/testserver/testsqlite", may: []string{"dedupe", "dedupe/machine", "dedupe/sqlitestore"},
		why: "it opens files for the tests of many packages, which register the driver themselves",
	},
	{
		pkgs: "internal/testserver/testaws", may: []string{"sqsfake"}, others: []string{"github.com/aws/..."},
		why: "it makes queues and tables for the tests of drivers and stores, and starts no server",
	},
	{
		pkgs: "internal/tests/...", may: []string{"..."}, others: []string{"..."}, testOthers: []string{"..."},
		why: "what needs the whole house is tested there",
	},
	{
		pkgs: "sqsfake", testOthers: []string{"github.com/aws/..."},
		why: "users' tests take the server with the standard library alone",
	},
	{
		pkgs: "internal/sdkhttp", others: []string{"github.com/aws/..."},
		why: "what the SDK's own client does with a redirect is known here, for the drivers and the store of AWS",
	},
	{
		pkgs: "internal/dynamokit", others: []string{"github.com/aws/..."},
		why: "what the store and the outbox in DynamoDB do alike to a table needs their client, which both bring",
	},
	{
		pkgs: "internal/pgkit", may: []string{"dedupe"}, others: []string{"github.com/jackc/pgx/v5/..."},
		why: "what the store and the queue in PostgreSQL do alike needs their client, which both bring",
	},
	{
		pkgs: "internal/pgkit/pgtest", may: []string{"dedupe"}, others: []string{"github.com/jackc/pgx/v5/..."},
		why: "it makes roles, poolers and plans for the tests of the store and the queue in PostgreSQL",
	},
	{
		pkgs: "internal/release", may: []string{"...", "adapters/sqlitebroker", "dedupe/sqlitestore"}, others: []string{sqliteDriver},
		why: "it makes a queue in a file, on which a release's binaries are tried",
	},
	{
		pkgs: "internal/...", may: core, testOthers: []string{sqliteDriver},
		why: "the core links these helpers, so they import no other module either",
	},
	{
		pkgs: "localstack/...", may: []string{"..."}, others: []string{"..."}, testOthers: []string{"..."},
		why: "it starts the real back ends and runs everything against them",
	},
	{
		pkgs: "examples/...", may: []string{"..."}, others: []string{"..."}, testOthers: []string{"..."},
		why: "examples show the parts together",
	},
	{
		pkgs: "cmd/...", may: []string{"..."}, others: []string{"..."}, testOthers: []string{"..."},
		why: "programs choose drivers and stores",
	},
}

// A confined import may stand in the packages of only, and nowhere else. Where code is set,
// only their non-test files are looked at: any test may import it.
type confined struct {
	imports, only []string
	code          bool
	why           string
}

var confinements = []confined{
	{
		imports: []string{"github.com/testcontainers/testcontainers-go/..."}, only: []string{"localstack/..."},
		why: "Docker is one package's concern; everything else takes an address",
	},
	{
		imports: []string{"testing/...", "onceqtest", "broker/brokertest", "dedupe/dedupetest"},
		only:    testSupport, code: true,
		why: "no program of a user's links the testing package because it imports onceq",
	},
	{
		imports: []string{"C"},
		why:     "the tests run on a machine with Go alone",
	},
}

// A ban forbids names, "path.Name" or "path.*", or builtin functions without a path.
type ban struct {
	names  []string
	pkgs   []string
	except []string
	// tests: the ban holds in _test.go files as well.
	tests bool
	why   string
}

var bans = []ban{
	{
		names: []string{"time.Sleep"}, pkgs: []string{"..."},
		except: []string{"examples/...", "localstack/...", "internal/tests/...", "internal/release", "internal/mutants", "internal/soak", "internal/speeds", "internal/weight"}, tests: true,
		why: "a sleep cannot be cancelled, and a test that sleeps is slow or flaky: wait on a channel or a timer, in tests in a synctest bubble",
	},
	{
		names: []string{"fmt.Print", "fmt.Printf", "fmt.Println", "print", "println"}, pkgs: []string{"..."}, except: programs,
		why: "standard output belongs to the program, not to a library",
	},
	{
		names: []string{"log.*"}, pkgs: []string{"..."}, except: programs,
		why: "no global logger: the user passes a *slog.Logger",
	},
}

// The rules below need more than a name; each says where it holds.
var (
	// noInit: nothing registers in init, so that importing the core has no effect.
	noInit = core
	// noPanic: a library that panics on what it was given takes the user's worker down. A panic
	// passed on after recover is allowed, and one that a comment "// invariant: ..." on its line
	// or the line before explains.
	// onceqtest is left out: no worker in production has it, and a Process, which knows no test,
	// can refuse a fault that tests nothing in no other way.
	noPanic = slices.DeleteFunc(slices.Clone(core), func(p string) bool { return p == "onceqtest" })
	// documented: each exported name has a doc comment, and so has each field of a struct
	// named ...Config or ...Options, because that is where defaults and limits are told.
	documented = []string{"..."}
	// undocumented packages are imported by no user.
	undocumented = []string{"internal/...", "examples/...", "cmd/...", "adapters/gcppubsub/cmd/..."}
	// maxLines: a longer file has more than one job.
	maxLines = 600
)
