# `make` lists the targets. All of them work on a fresh Debian machine with Go, as root
# or with sudo; elsewhere PostgreSQL and a C compiler (for -race) must be there.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

GO ?= go
# Each module is tested as its users get it, without the workspace.
export GOWORK := off
MODULES := . $(filter-out tools,$(patsubst %/go.mod,%,$(wildcard */go.mod */*/go.mod)))
BIN := $(CURDIR)/bin
WITH_POSTGRES := $(BIN)/with-postgres

# What to run and how: make test MODULES=. PKG=./internal/... TESTFLAGS='-run Lease -v'
PKG ?= ./...
TESTFLAGS ?=
FUZZTIME ?= 20s
BENCHFLAGS ?=
# SQLite's C, translated to Go, is many times slower under the race detector, which has
# nothing to find there: it has one caller at a time. Only that package is left out; a
# package with generic code in it would lend its own, unwatched, to others.
RACE := -race -gcflags='modernc.org/sqlite/lib=-race=false'

# Runs a command in every module, goes on after a failure, and fails at the end.
define in_modules
status=0; \
for module in $(MODULES); do \
	echo "== $$module: $(1)"; \
	(cd "$$module" && $(1)) || status=1; \
done; \
exit $$status
endef

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: test
test: prepare $(WITH_POSTGRES) ## run all tests of all modules with the race detector, on a throw-away PostgreSQL
	@$(WITH_POSTGRES) $(MAKE) test-modules

.PHONY: test-browser
test-browser: ## run the tests of the pages in headless Chromium, which is installed where it is missing
	@.ci/prepare chromium
	@cd browser && $(GO) test -shuffle=on -count=1 $(TESTFLAGS) ./...

.PHONY: screenshots
screenshots: ## take the pictures in docs/img anew
	@.ci/prepare chromium
	@cd browser && WEBHOOK_SCREENSHOTS=$(CURDIR)/docs/img $(GO) test -tags=screenshots -count=1 -run=Screenshots ./...

.PHONY: test-modules
test-modules:
	@$(call in_modules,$(GO) test $(RACE) -shuffle=on $(TESTFLAGS) $(PKG))

.PHONY: test-long
test-long: prepare $(WITH_POSTGRES) ## run each test 20 times, then those behind the build tag "long", and the soak (two hours or more)
	@$(WITH_POSTGRES) $(MAKE) test-modules TESTFLAGS='-count=20 -timeout=90m -skip=TestSoak $(TESTFLAGS)'
	@$(WITH_POSTGRES) $(MAKE) test-modules WEBHOOK_LONG=1 TESTFLAGS='-tags=long -count=1 -timeout=90m -skip=TestSoak $(TESTFLAGS)'
	@$(MAKE) soak

# The oldest PostgreSQL and the newest, PgBouncer, and the other SQLite driver.
COMPAT ?= 13 18
.PHONY: test-compat
test-compat: $(WITH_POSTGRES) ## run the stores' tests on other versions of PostgreSQL (COMPAT="13 18"), PgBouncer and mattn/go-sqlite3
	@.ci/prepare npm pgbouncer
	@for version in $(COMPAT); do \
		echo "== PostgreSQL $$version"; \
		PGTEST_BINDIR=$$(.ci/postgres $$version) $(WITH_POSTGRES) $(GO) test -shuffle=on -skip='Plans|Cost|LooksAt' $(TESTFLAGS) ./store/postgres; \
	done
	@echo "== PgBouncer in transaction mode"
	@$(WITH_POSTGRES) $(GO) test -tags=compat -run=PgBouncer $(TESTFLAGS) ./store/postgres
	@echo "== SQLite through mattn/go-sqlite3"
	@cd integration && $(GO) test -tags=mattn -shuffle=on $(TESTFLAGS) ./sqlite

SOAK ?= 10m
.PHONY: soak
soak: prepare $(WITH_POSTGRES) ## let three processes, the database, clocks and receivers fail in every way for SOAK (10m); make test does it for one
	@cd integration && WEBHOOK_SOAK=$(SOAK) $(GO) test -run='^TestSoak$$' -count=1 -timeout=60m -v ./crash

.PHONY: check
check: format-check vet lint tidy-check test api-check vuln ## everything that must pass before a change is merged

.PHONY: vet
vet: ## run go vet in every module
	@$(call in_modules,$(GO) vet ./... && $(GO) vet -tags=long,compat,mattn,screenshots ./...)

.PHONY: lint
lint: $(BIN)/golangci-lint ## run the linters in every module
	@$(call in_modules,$(BIN)/golangci-lint run --allow-parallel-runners --config=$(CURDIR)/.golangci.yml ./...)

.PHONY: fmt
fmt: $(BIN)/golangci-lint ## format all code
	@$(call in_modules,$(BIN)/golangci-lint fmt --config=$(CURDIR)/.golangci.yml ./...)

.PHONY: format-check
format-check: $(BIN)/golangci-lint
	@$(call in_modules,$(BIN)/golangci-lint fmt --diff --config=$(CURDIR)/.golangci.yml ./...)

.PHONY: tidy
tidy: ## tidy the go.mod of every module
	@$(call in_modules,$(GO) mod tidy)

.PHONY: tidy-check
tidy-check:
	@$(call in_modules,$(GO) mod tidy -diff)

.PHONY: api-check
api-check: $(BIN)/apidiff ## compare the exported API with that of the last release
	@.ci/api $(BIN)/apidiff

.PHONY: release-notes
release-notes: ## print what the changelog says of VERSION, or of what is not released
	@awk -v version="$(patsubst v%,%,$(VERSION))" '/^## / { on = index($$2, "[" (version ? version : "Unreleased") "]") == 1; found += on; next } on { print } END { exit !found }' CHANGELOG.md

.PHONY: vuln
vuln: $(BIN)/govulncheck ## look for known vulnerabilities (needs vuln.go.dev, and says so where that cannot be reached)
	@$(call in_modules,$(CURDIR)/.ci/vuln $(BIN)/govulncheck)

.PHONY: bench
bench: prepare ## compare with peers on a durable PostgreSQL; prints "ratio NAME VALUE" lines (BENCHFLAGS=-quick)
	@cd bench && $(GO) run . $(BENCHFLAGS)

.PHONY: bench-micro
bench-micro: ## run the benchmarks beside the code
	@$(GO) test -run='^$$' -bench=. -benchmem $(PKG)

.PHONY: cover
cover: prepare $(WITH_POSTGRES) ## measure the root module's coverage; the profile is bin/cover.out
	@$(WITH_POSTGRES) $(GO) test -coverpkg=./... -coverprofile=$(BIN)/cover.out ./...
	@$(GO) tool cover -func=$(BIN)/cover.out | tail -1

.PHONY: fuzz
fuzz: ## run every fuzz test for FUZZTIME (20s)
	@for package in $$($(GO) list ./...); do \
		for name in $$($(GO) test -list='^Fuzz' "$$package" | grep '^Fuzz' || true); do \
			$(GO) test -run='^$$' -fuzz="^$$name\$$" -fuzztime=$(FUZZTIME) "$$package"; \
		done; \
	done

.PHONY: prepare
prepare: ## install what the tests need where it is missing: PostgreSQL, Chromium, and a C compiler for -race (Debian)
	@.ci/prepare chromium

.PHONY: clean
clean: ## remove what was built here
	rm -rf $(BIN)

$(WITH_POSTGRES): $(wildcard internal/pgtest/*.go internal/pgtest/*.sh internal/pgtest/cmd/with-postgres/*.go) go.mod
	@$(GO) build -o $@ ./internal/pgtest/cmd/with-postgres

# The pinned tools are compiled once, which takes a minute or two.
$(BIN)/golangci-lint $(BIN)/govulncheck $(BIN)/apidiff &: tools/go.mod tools/go.sum
	@echo "== building the tools pinned in tools/go.mod"
	@cd tools && $(GO) build -o $(BIN)/ tool
	@touch $(BIN)/golangci-lint $(BIN)/govulncheck $(BIN)/apidiff
