# make PKG=./locking/... test  works on part of the tree; without PKG it is every module of the workspace.
SHELL := /bin/bash
.DEFAULT_GOAL := help

PKG ?=
BASE ?= main
RACE ?=
FUZZTIME ?= 30s
BENCH ?= .
BENCHTIME ?= 1s
ACQUISITIONS ?= 1000000
SEED ?= 1
SAMPLE ?= 120
TASKS ?= 100000
KEYS ?= 1000
KILLS ?= 60s
MODES ?=
CROWD ?= 100000
FLOOD ?= 20s
HELD ?= 100000
CUTS ?= 1000
TRANSFERS ?= 10000
ORDERS ?=
TRACES ?= 100
VERSION ?=
ROWS ?=
export RACE FUZZTIME BENCH BENCHTIME ORDERS TASKS KEYS KILLS SEED MODES CROWD FLOOD HELD TRACES

.PHONY: help
help: ## Show this list
	@awk 'BEGIN { FS = ":.*## " } /^[a-z-]+:.*## / { printf "  %-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: demo
demo: ## Watch workers share orders, with nothing installed
	@go run ./examples/orders -demo

.PHONY: allocation
allocation: ## Watch runs of 40 orders being allocated beside audits, with nothing installed; ORDERS=file reads real orders
	@go run ./examples/allocation $(if $(ORDERS),-orders $(ORDERS))

.PHONY: quick
quick: ## Test what a task passes through, in under a minute; needs redis-server
	@scripts/quick.sh

.PHONY: test
test: ## Test everything; RACE=1 adds the race detector, as CI does; installs what is missing: servers, and a C compiler
	@scripts/test.sh $(PKG)

.PHONY: lint
lint: ## Check format, golangci-lint with go vet, and go fix
	@scripts/lint.sh $(PKG)

.PHONY: fmt
fmt: ## Format and modernize the code
	@scripts/fmt.sh $(PKG)

.PHONY: fuzz
fuzz: ## Run each fuzz target for FUZZTIME (30s)
	@scripts/fuzz.sh

.PHONY: bench
bench: ## Measure against everyone and write docs/benchmarks.md, in an hour; ARGS="-quick -run A1" prints a part; ORDERS=file
	@scripts/bench.sh $(ARGS)

.PHONY: microbench
microbench: ## Run the packages' own benchmarks; BENCH, BENCHTIME, COUNT and PKG choose
	@scripts/microbench.sh $(PKG)

.PHONY: bench-compare
bench-compare: ## Compare the packages' benchmarks of BASE (main) with the tree as it is
	@scripts/bench-compare.sh "$(BASE)" $(PKG)

.PHONY: model
model: ## Check the model of the Redlock protocol; needs spin and a C compiler
	@scripts/model.sh

.PHONY: traces
traces: ## Record TRACES (100) runs of real workers, which the model must explain, and runs with faults, which it must not; needs spin
	@scripts/traces.sh

.PHONY: simulate
simulate: ## Simulate Redlock with fencing tokens: ACQUISITIONS (1000000) of each of ten scenarios, from SEED (1)
	@go test -C internal/verify/simulate -count=1 -timeout 60m -run TestTokensAreUniqueAndInOrder -acquisitions $(ACQUISITIONS) -seed $(SEED) -table

.PHONY: soak
soak: ## Kill workers for KILLS (60s), one each 2s, over TASKS (100000) on KEYS (1000); MODES chooses other soaks; about five minutes
	@scripts/soak.sh

.PHONY: fleet
fleet: ## The same in BestEffort, FIFO and StrictFIFO while every other worker is of the commit BASE (main)
	@scripts/fleet.sh "$(BASE)"

.PHONY: thorough
thorough: ## Play crash points, random plans and long runs in full length, in a namespace, too, and suspend machines; about eleven minutes
	@REDISTEST_REQUIRE=1 go test -tags thorough -count=1 -timeout 30m ./attach ./internal/verify/crashtest ./internal/verify/e2e ./locking ./middleware
	@REDISTEST_REQUIRE=1 go test -tags thorough -count=1 -timeout 30m ./internal/verify/e2e -namespace shop-a
	@scripts/suspend.sh

.PHONY: crowd
crowd: ## Have CROWD (100000) tasks wait for one held key, run each after the release, and measure a park; needs redis-server
	@scripts/crowd.sh

.PHONY: move
move: ## Move TASKS (100000) tasks into lanes while two servers work, and check that each runs once and in order; needs redis-server
	@scripts/move.sh

.PHONY: items
items: ## Kill workers while 1500 tasks of 40 items run (RUNS) beside 7500 audits (AUDITS), with and without a mark, and check 1000 pairs (PAIRS)
	@scripts/items.sh

.PHONY: ledger
ledger: ## Move money TRANSFERS (10000) times in each of five modes on three databases while workers are stopped and killed; ten minutes
	@REDISTEST_REQUIRE=1 go test -C examples/ledger -count=1 -timeout 60m -run '^TestTheWholeLedgerKeepsItsPromises$$' -whole \
		-transfers $(TRANSFERS) -plot "$(CURDIR)/docs/ledger.svg"

.PHONY: chaos
chaos: ## Break servers, networks and processes under locks (FOR=10m) and under TASKS (200000), judge them, write docs/reliability.md; half an hour
	@TASKS=$(if $(filter file,$(origin TASKS)),200000,$(TASKS)) scripts/chaos.sh

.PHONY: mutate
mutate: ## Change one small thing at a time, SAMPLE (120) of each target, list what no test notices in docs/mutation.md; PKG="quorum line" chooses
	@PKG="$(PKG)" SAMPLE="$(SAMPLE)" scripts/mutate.sh

.PHONY: overload
overload: ## Flood locks with 2048 callers for FLOOD (20s) while HELD (100000) leases are held, on one server and on five; about three minutes
	@scripts/overload.sh

.PHONY: lost-replies
lost-replies: ## Cut CUTS (1000) replies to scripts in each of six ways to use a lock: no lease may be lost; needs redis-server
	@REDISTEST_REQUIRE=1 go test -C locking -count=1 -timeout 15m -v -run '^TestLostRepliesLoseNoLease$$' -cuts $(CUTS)

.PHONY: interop
interop: ## Test against the lock suites and programs of others; needs redis-server, node and npm
	@scripts/interop.sh

.PHONY: interop-valkeyrie
interop-valkeyrie: ## The same with the lock suite of valkeyrie; needs redis-server
	@scripts/interop-valkeyrie.sh

.PHONY: docker-test
docker-test: ## Build the images, start each profile of docker/compose.yaml, kill and cut off workers and servers; starts an engine if root
	@scripts/docker-test.sh

.PHONY: release-check
release-check: ## Pack the modules, fetch each in a fresh folder, and compile README's programs; VERSION is that which they require
	@scripts/release-check.sh $(VERSION)

.PHONY: matrix
matrix: ## Try each server that can be had, standalone, Sentinel and Cluster, and write README's table; ROWS='"Redis 7.0"' chooses
	@scripts/matrix.sh $(ROWS)

.PHONY: release
release: ## Rehearse a release of VERSION into .release/: notes, API diff, vulnerabilities, bills of materials, checksums, binaries
	@scripts/release.sh $(VERSION)

.PHONY: site
site: ## Build the documents and examples as a site with a search into .site/, without network; needs nothing but Go
	@go run ./tools/site -out .site

.PHONY: screenshots
screenshots: ## Make the pictures of the admin page in docs/; needs redis-server and Chromium
	@REDISTEST_REQUIRE=1 go test -C inspect/admin/browser -count=1 -run '^TestPicturesFitTheScreen$$' . -screenshots "$(CURDIR)/docs"

.PHONY: cover
cover: ## Measure test coverage into .cover/
	@scripts/cover.sh $(PKG)

.PHONY: clean
clean: ## Remove what the other targets made
	rm -rf .bin .cover .release .site
