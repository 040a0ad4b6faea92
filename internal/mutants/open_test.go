package main

// heads are the first rows of the pages' tables.
var heads = []string{
	"| rule | case |", "| | memory | SQLite | PostgreSQL | DynamoDB |", "| present record | claim with | answer |",
	"| renew | answer |", "| settle | answer |", "| what happens | settle | then |", "| | invariant | held by |",
	"| letter | what its replay does |", "| since the plan was made | the replay |", "| the jobs of the batch | the replay |",
	"| part | where | what breaks |", "| | |",
}

// open are the rules that have no mutant, each with the reason.
var open = map[string]string{
	"contracts: What an envelope says of its origin":        "it is said of the world, and no code holds it",
	"contracts: | whose clock decides about leases":         "case clock-of-the-second-handle; a store's clock is no condition that could be left out",
	"contracts: | the earlier attempts |":                   "where a store keeps them; the cases past-… have broken stores",
	"contracts: | what needs attention |":                   "where a store keeps it; the indexes are the rule of the row above",
	"contracts: **PostgreSQL.**":                            "the heading of a list",
	"contracts: Every function, type and operator is named": "a gate of the package reads each statement",
	"contracts: A call is one pipeline":                     "how many round trips, which is counted",
	"protocol: Whoever must not have a handler start twice": "advice to users",
	"protocol: a `Worker` receives from one queue":          "what the word means",
	"protocol: all calls of `Do` on a Processor share":      "what the word means",
	"protocol: *Defaults*, in one table":                    "constants; the package's documentation states them, and a test compares the two",
}
