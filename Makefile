SHELL := bash
.DEFAULT_GOAL := help
.PHONY: help test integration bench chaos chaos-long redisson redisson-soak trials soak lint fmt tidy

BENCH ?= .
BENCHTIME ?= 1x
SOAK ?= 10m

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 15

test: ## the tests, race detector on (brings redis-server where it can)
	@scripts/test.sh

integration: ## those on sentinels, clusters, other servers, beside Redisson (brings servers, a JDK and Maven where it can)
	@PKGS=./integration/... scripts/test.sh

bench: ## what we promise, measured; BENCH=regexp chooses, e.g. make bench BENCH=Uncontended
	@scripts/test.sh --setup
	@go test -run '^$$' -bench '$(BENCH)' -benchtime $(BENCHTIME) -timeout 30m ./bench

chaos: ## processes against a nemesis, 30 s on each topology; SEEDS="1 2", TOPOLOGIES, DURATION and others: scripts/chaos.sh
	@scripts/chaos.sh

chaos-long: ## the same, 10 minutes on each topology with each of five seeds: 2.5 hours
	@DURATION=10m SEEDS="$${SEEDS:-1 2 3 4 5}" scripts/chaos.sh

redisson: ## side by side with a real Redisson (brings a JDK and Maven where it can)
	@PKGS=./integration/redisson scripts/test.sh --setup
	@go test -race -count=1 -timeout 6m -v -run '$(or $(RUN),.)' ./integration/redisson

redisson-soak: ## all primitives by two JVMs and two Go processes on the same names for 10 minutes (SOAK)
	@PKGS=./integration/redisson scripts/test.sh --setup
	@HOLDFAST_REDISSON_SOAK=$(SOAK) go test -race -count=1 -timeout 0 -v -run '^TestSoak$$' ./integration/redisson

trials: ## what docs/reliability.md tells, measured: losses, failovers, restarts; BENCH=regexp chooses, e.g. make trials BENCH=Loss
	@PKGS=./integration/trials scripts/test.sh --setup
	@go test -run '^$$' -bench '$(BENCH)' -benchtime 1x -timeout 60m ./integration/trials

soak: ## all primitives for 10 minutes (SOAK), draws docs/soak.svg; fails if heap, goroutines, keys or connections grow
	@scripts/test.sh --setup
	@cd integration && go run ./soak -duration $(SOAK) -svg ../docs/soak.svg

lint: ## format, vet, fix, layers, scripts, known vulnerabilities
	@scripts/lint.sh

fmt: ## format all Go files
	@GOWORK=off go tool -modfile=tools.mod gofumpt -w .

tidy: ## go mod tidy in every module; nested ones as if this tree were released
	@set -euo pipefail; \
	root=$$PWD; mods=$$(go list -m -f '{{.Path}} {{.Dir}}'); \
	GOWORK=off go mod tidy; \
	while read -r _ dir; do \
		[ "$$dir" != "$$root" ] || continue; \
		cd "$$dir"; cp go.mod .tidy.mod; \
		if [ -f go.sum ]; then cp go.sum .tidy.sum; fi; \
		while read -r path at; do \
			[ "$$at" = "$$dir" ] || go mod edit -replace="$$path=$$at" .tidy.mod; \
		done <<<"$$mods"; \
		GOWORK=off go mod tidy -modfile=.tidy.mod; \
		while read -r path at; do \
			go mod edit -dropreplace="$$path" .tidy.mod; \
		done <<<"$$mods"; \
		mv .tidy.mod go.mod; \
		if [ -f .tidy.sum ]; then mv .tidy.sum go.sum; fi; \
	done <<<"$$mods"
