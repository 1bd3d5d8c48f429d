# make PKG=./locking/... test  works on part of the tree; without PKG it is every module of the workspace.
SHELL := /bin/bash
.DEFAULT_GOAL := help

PKG ?=
BASE ?= main
FUZZTIME ?= 30s
BENCH ?= .
BENCHTIME ?= 1s
export FUZZTIME BENCH BENCHTIME

.PHONY: help
help: ## Show this list
	@awk 'BEGIN { FS = ":.*## " } /^[a-z-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: demo
demo: ## Watch workers share orders, with nothing installed
	@go run ./examples/orders -demo

.PHONY: test
test: ## Test everything with the race detector; installs redis-server and a C compiler when missing
	@scripts/test.sh $(PKG)

.PHONY: lint
lint: ## Check format, go vet, go fix and golangci-lint
	@scripts/lint.sh $(PKG)

.PHONY: fmt
fmt: ## Format and modernize the code
	@scripts/fmt.sh $(PKG)

.PHONY: fuzz
fuzz: ## Run each fuzz target for FUZZTIME (30s)
	@scripts/fuzz.sh

.PHONY: bench
bench: ## Run the benchmarks; BENCH, BENCHTIME, COUNT and PKG choose
	@scripts/bench.sh $(PKG)

.PHONY: bench-compare
bench-compare: ## Compare the benchmarks of BASE (main) with the tree as it is
	@scripts/bench-compare.sh "$(BASE)" $(PKG)

.PHONY: cover
cover: ## Measure test coverage into .cover/
	@scripts/cover.sh $(PKG)

.PHONY: clean
clean: ## Remove what the other targets made
	rm -rf .bin .cover
