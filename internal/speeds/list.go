package main

// This file owns the lists: what make test plays without the race detector, and what begins first.

// unwatched is what the race detector does not watch in any run. SQLite, translated from C, would
// have each of its steps through a page watched, which takes four times as long and tells nothing
// about us. The model and what reads our source have one goroutine, as have the parser and the type
// checker under them.
//
// Nothing of the standard library's beside that, and no SDK: the linker keeps one copy of a generic
// function for all packages, and takes it from an unwatched one, too (docs/decisions/0020).
var unwatched = []string{"modernc.org/...", "go/...", module + "/internal/model", module + "/internal/arch"}

const module = "github.com/onceq/onceq"

// The reasons why make test plays a package without the race detector. make proof watches them all.
const (
	waits   = "its tests wait for a real server, which has its share of the processors"
	browser = "its tests wait for a browser; the page's own tests are watched"
	starts  = "its tests are about processes that they start"
	shows   = "it shows what is watched where that is tested"
	oneRoad = "it has one goroutine"
)

// unraced are the packages that make test plays without the race detector, with the reason, by
// their folders. A pattern that ends in /... takes what is below it. Their order is theirs in the
// run: what takes longest begins first, so that none of it is left alone at the end.
var unraced = []struct{ pattern, why string }{
	{"adapters/awssqs", waits}, // the matrix watches both drivers
	{"adapters/gocloudpubsub", waits},
	{"dedupe/dynamostore", waits},
	{"dedupe/firestorestore", waits},
	{"internal/tests/chaos", starts},
	{"dedupe/pgstore", waits},
	{"adapters/pgbroker", waits},
	{"adapters/dynamooutbox", waits},
	{"internal/tests/page", browser},
	{"internal/chromium", browser},
	{firstAside, shows},
	{"examples/sqstest", shows},
	{"examples/fleet", shows},
	{"examples/lambda", shows},
	{"localstack/...", starts},
	{"internal/tests/function", starts},
	{"examples/...", shows},
	{"internal/tests/worlds", shows},
	{firstLate, oneRoad},
	{"internal/arch", oneRoad},
	{"internal/api", oneRoad},
	{"internal/release", starts},
	{"internal/mutants", starts},
}

// firstAside and what stands behind it are mostly asleep, because they wait for programs that they
// start. They are played one after the other beside the rest, so that they keep no processor idle.
const firstAside = "cmd/..."

// firstLate and what stands behind it compute. They begin when the raced packages have ended.
const firstLate = "internal/model"

// first are the packages of the raced list that take longest, the longest first.
var first = []string{
	matrix,
	"internal/tests/watermill",
	"internal/coretest/outages",
	"internal/coretest/life",
	"internal/coretest/claims",
	"internal/coretest/...",
}

// matrix is in both lists: a part of its cells in virtual time is played with the race detector,
// and the rest without it.
const matrix = "internal/tests/matrix"

// partEnv tells the matrix which of its cells to play.
const partEnv = "ONCEQ_MATRIX"
