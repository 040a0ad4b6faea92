# What a contributor runs. Go alone is enough for demo, quick, test, bench and fuzz; check and lint
# fetch their tools through the Go module proxy, at the versions pinned under internal/tools.

GO ?= go

# Passed on: make demo ARGS=-no-onceq; make demo STORE=dynamodb QUEUE=pubsub; make test PKGS=./broker/... TESTFLAGS=-count=20
ARGS ?=
STORE ?=
QUEUE ?=
# of make drill
FAULT ?= bank
# these packages alone; left alone, all of all modules that go.work names
PKGS ?=
TESTFLAGS ?=
# make bench BENCH=Worker BENCHPKGS=./internal/coretest/life runs less; BENCHPKGS is every package that has a benchmark
BENCH ?= .
BENCHPKGS ?=
BENCHFLAGS ?=
# for each fuzz function; left alone, go takes up to a minute to shrink an input that is merely new
FUZZTIME ?= 20s
FUZZFLAGS ?= -fuzzminimizetime 1s
# how often make chaos kills or stops a worker; make proof does so 24 times
ROUNDS ?= 200
# how long make soak plays
SECONDS ?= 600

# Every module with code of ours. go.work joins them, but for internal/bench, whose libraries would raise the versions of all.
MODULES := $(patsubst %/go.mod,%,$(shell find . -name go.mod ! -path './.*' ! -path './internal/tools/*' | sort))
# $(call each,COMMAND) runs it in each module's folder, as who has that module alone would: without go.work.
each = @for m in $(MODULES); do echo "$$m: $(1)"; (cd $$m && GOWORK=off $(1)) || exit 1; done

# The tools run in any module's folder. -modfile is not for work spaces.
TOOL := GOWORK=off $(GO) tool -modfile=$(CURDIR)/internal/tools/go.mod
LINT := GOWORK=off $(GO) tool -modfile=$(CURDIR)/internal/tools/lint/go.mod
# Runs go test so that all packages share one instance of each back end, and tells what they were.
TESTRUN := $(GO) run ./localstack/internal/testrun
# Runs the tests at a speed: which packages, which of them raced, what begins first.
SPEEDS := $(GO) run ./internal/speeds -pkgs '$(PKGS)'
# Where the import path and folder of each package are wanted, "path folder" a line.
PACKAGES = $(GO) list -f '{{.ImportPath}} {{.Dir}}' $(or $(PKGS),work)

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help demo pictures drill demo-agent quick test proof weight apart soak chaos compat mutants rehearsal check fmt-check vet fix-check staticcheck tidy-check walls alerts bench lint fuzz fmt

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: ## kill -9 worker processes on 2,000 orders and count the charges (ARGS=-no-onceq: without the library; STORE=postgres, dynamodb or firestore, QUEUE=pubsub, sqlite or postgres)
	@echo 'building the demo: the first time this takes a minute or two'
	$(foreach b,$(sort $(filter-out sqlite,$(STORE)) $(filter postgres,$(QUEUE))),$(GO) run ./localstack/internal/with $(b)) $(GO) run ./examples/fleet $(if $(STORE),-store $(STORE)) $(if $(QUEUE),-queue $(QUEUE)) $(ARGS)

demo-agent: ## kill -9 worker processes every second while they make paid calls of a language model, and read the bill (ARGS=-no-key, -no-steps: what it would be; STORE=postgres or dynamodb)
	$(foreach b,$(filter-out sqlite,$(STORE)),$(GO) run ./localstack/internal/with $(b)) $(GO) run ./examples/agent $(if $(STORE),-store $(STORE)) $(ARGS)

pictures: ## take the pictures of the operator's page for the docs, in Chromium
	cd internal/tests && ONCEQ_BACKENDS=chromium $(GO) test -count=1 -run 'TestPage/pictures' ./page -update

drill: ## a fleet with a fault, which you mend by docs/runbook.md (FAULT=bank, receives or producer)
	$(GO) run ./examples/fleet -keep -drill $(FAULT)

quick: ## within a minute: the tests that need no server, without the race detector; what has not changed since it passed is not run again
	@$(SPEEDS) quick $(TESTFLAGS)

test: ## run all tests in random order, against the back ends that are found; what computes, with the race detector where cgo and a C compiler are
	@$(TESTRUN) $(SPEEDS) test $(TESTFLAGS)

proof: ## run all tests at full length, with the race detector: nightly, and before a release
	@$(TESTRUN) $(SPEEDS) proof $(TESTFLAGS)
	@$(TESTRUN) $(GO) run ./internal/mutants server

weight: ## print what the tree weighs: names at the root, lines, modules, exported names, seconds of the last quick and test
	@$(GO) run ./internal/weight

apart: ## build and test each module by itself, without go.work
	@for m in $(MODULES); do \
		echo "$$m"; \
		$(TESTRUN) env GOWORK=off $(GO) -C $$m test $(TESTFLAGS) ./... || exit 1; \
	done

soak: ## play random worlds for SECONDS (600), in virtual time, and print the seeds that fail
	$(GO) run ./internal/soak -seconds $(SECONDS)

chaos: ## kill, stop and drain worker processes ROUNDS (200) times, in trouble, on every store (make proof: 24 times)
	$(MAKE) test PKGS='./internal/tests/chaos -rounds $(ROUNDS)' TESTFLAGS='-count=1 -v -timeout 60m'

compat: ## run pgstore's and pgbroker's tests on each PostgreSQL from 13 to 18, and through PgBouncer, where these can be had (ARGS='14 pgbouncer')
	$(GO) run ./localstack/internal/compat $(ARGS)

mutants: ## break the code on purpose, one place at a time, and see a test turn red (ARGS=all: with those that need a server; ARGS=core or a file's name: those alone)
	@$(if $(ARGS),$(TESTRUN)) $(GO) run ./internal/mutants $(ARGS)

rehearsal: ## release a copy of the tree, and take what came of it as users would
	$(GO) run ./internal/release -rehearse

check: fmt-check vet fix-check staticcheck tidy-check walls alerts ## every gate but the tests: format, vet, go fix, staticcheck, tidy, import walls, alert rules

fmt-check:
	@out=$$($(TOOL) gofumpt -l .) || exit 1; \
	if [ -n "$$out" ]; then echo "not formatted as gofumpt does it; run make fmt:"; echo "$$out"; exit 1; fi

# GOOS=windows make vet looks at another system's files. The command is also built without some drivers.
vet:
	$(call each,$(GO) vet ./...)
	@for tags in nosqlite nopubsub nofirestore nosqlite,nopubsub,nofirestore; do echo "./cmd/onceq: $(GO) vet -tags $$tags"; (cd cmd/onceq && GOWORK=off $(GO) vet -tags $$tags . ./internal/places) || exit 1; done

fix-check:
	$(call each,$(GO) fix -diff ./...)

staticcheck:
	$(call each,$(TOOL) staticcheck ./...)

# golangci-lint's own module is left to make lint: tidying it fetches a thousand files.
tidy-check:
	$(call each,$(GO) mod tidy -diff)
	GOWORK=off $(GO) -C internal/tools mod tidy -diff
	GOWORK=off $(GO) -C internal/tools/promrules mod tidy -diff

walls:
	$(GO) test -count=1 -v -run '^TestWalls$$' ./internal/arch

# With Prometheus's own engine, whose first build takes a minute or two.
alerts:
	GOWORK=off $(GO) -C internal/tools/promrules test -count=1 ./...

bench: ## run the benchmarks, and internal/bench, which compares with others (BENCH=pattern, BENCHPKGS=packages)
	@pkgs="$(BENCHPKGS)"; peers=; \
	if [ -z "$$pkgs" ]; then \
		peers=yes; \
		list=$$($(PACKAGES)) || exit 1; \
		pkgs=$$(echo "$$list" | while read -r pkg dir; do \
			grep -qs '^func Benchmark' "$$dir"/*_test.go && echo "$$pkg"; \
		done); \
	fi; \
	if [ -z "$$pkgs" ]; then echo "make bench: no package has a benchmark"; exit 0; fi; \
	set -x; $(TESTRUN) $(GO) test -run '^$$' -bench '$(BENCH)' -benchmem $(BENCHFLAGS) $$pkgs || exit 1; \
	if [ -n "$$peers" ]; then $(TESTRUN) env GOWORK=off $(GO) -C internal/bench test -run '^$$' -bench '$(BENCH)' -timeout 30m $(BENCHFLAGS) .; fi

lint: ## golangci-lint, a wider net than check (its first build takes minutes)
	GOWORK=off $(GO) -C internal/tools/lint mod tidy -diff
	$(call each,$(LINT) golangci-lint run -c $(CURDIR)/internal/tools/lint/.golangci.yml ./...)

fuzz: ## run every fuzz function for FUZZTIME (20s) each
	@list=$$($(PACKAGES)) || exit 1; \
	found=$$(echo "$$list" | while read -r pkg dir; do \
		cat "$$dir"/*_test.go 2>/dev/null | sed -n "s|^func \(Fuzz[A-Za-z0-9_]*\)(.*|$$pkg \1|p"; \
	done); \
	if [ -z "$$found" ]; then echo "make fuzz: no package has a fuzz function"; exit 0; fi; \
	echo "$$found" | while read -r pkg name; do \
		echo "$(GO) test -fuzz $$name -fuzztime $(FUZZTIME) $(FUZZFLAGS) $$pkg"; \
		$(GO) test -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZTIME) $(FUZZFLAGS) "$$pkg" </dev/null || exit 1; \
	done

fmt: ## rewrite the code as check wants it
	$(call each,$(GO) fix ./...)
	$(TOOL) gofumpt -w .
