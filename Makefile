# Targets are documented by the "##" after their name; `make help` prints them.
SHELL := /usr/bin/env bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

MAKEFLAGS += --no-print-directory

BIN := $(CURDIR)/bin

# The operator's image; make deploy IMG=registry.example.com/memcached-operator:v1
IMG ?= example.com/memcached-operator:dev
# The members' image, where a spec names none; the manager's default if empty.
MEMCACHED_IMG ?=
# A checksum of what is behind the tag of IMG, if that stays.
IMG_CONTENT ?=

CHART := charts/memcached-operator

# Tools, each a Go module of this version.
CONTROLLER_GEN := $(BIN)/controller-gen-v0.22.0
KUSTOMIZE := $(BIN)/kustomize-v5.8.2
GOLANGCI_LINT := $(BIN)/golangci-lint-v2.15.0
KWOK := $(BIN)/kwok-v0.8.0
GOTESTSUM := $(BIN)/gotestsum-v1.13.0
SYFT := $(BIN)/syft-v1.57.1
KUBECTL ?= $(or $(shell command -v kubectl),$(BIN)/k8s/kubectl)

# What --version says of this build.
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null)
COMMIT ?= $(shell git rev-parse HEAD 2>/dev/null)
VERSION_PACKAGE := example.com/memcached-operator/version
VERSION_FLAGS := -X $(VERSION_PACKAGE).Version=$(VERSION) -X $(VERSION_PACKAGE).Commit=$(COMMIT)
# Programs, tests and tools are compiled alike, so that what they share is compiled once.
export CGO_ENABLED := 0
export GOFLAGS := $(filter-out -trimpath,$(GOFLAGS)) -trimpath
GO_BUILD := go build -ldflags "-s -w $(VERSION_FLAGS)"

##@ General

.PHONY: help
help: ## List every target
	@awk 'BEGIN {FS = ":.*## "} \
	  /^##@/ {printf "\n%s\n", substr($$0, 5)} \
	  /^[a-zA-Z0-9_-]+:.*## / {printf "  %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

##@ Build

.PHONY: build
build: ## Build the manager and the drainer, static, into bin/
	$(GO_BUILD) -o $(BIN)/manager ./cmd/manager
	$(GO_BUILD) -o $(BIN)/drainer ./cmd/drainer

# Always built, as the programs are: Go knows what has changed.
.PHONY: $(BIN)/kubectl-mc
$(BIN)/kubectl-mc:
	@$(GO_BUILD) -o $@ ./cmd/kubectl-mc

# Where kubectl finds the plugin: a folder of your PATH.
PLUGIN_DIR ?= /usr/local/bin

.PHONY: install-plugin
install-plugin: $(BIN)/kubectl-mc ## Install the plugin of kubectl, kubectl mc, with its completion: PLUGIN_DIR=~/bin
	install -D $(BIN)/kubectl-mc $(PLUGIN_DIR)/kubectl-mc
	printf '#!/bin/sh\nexec kubectl mc __complete "$$@"\n' >$(PLUGIN_DIR)/kubectl_complete-mc
	chmod +x $(PLUGIN_DIR)/kubectl_complete-mc

CONTAINER_TOOL ?= docker

.PHONY: docker-build
docker-build: ## Build the operator's image by the Dockerfile: IMG=…
	$(CONTAINER_TOOL) build -t $(IMG) --build-arg VERSION=$(VERSION) --build-arg COMMIT=$(COMMIT) .

.PHONY: docker-push
docker-push: ## Push it: IMG=…
	$(CONTAINER_TOOL) push $(IMG)

.PHONY: generate
generate: $(CONTROLLER_GEN) ## Generate the API's deep copies
	$(CONTROLLER_GEN) object paths=./api/...

.PHONY: manifests
manifests: $(CONTROLLER_GEN) ## Generate the CRDs, the operator's role, the chart's copies, the reference
	@# Made in bin/ and moved, so that no reader finds half of a file.
	$(CONTROLLER_GEN) crd paths=./api/... output:crd:dir=$(BIN)/manifests
	$(CONTROLLER_GEN) rbac:roleName=manager-role paths=./controllers/... output:rbac:dir=$(BIN)/manifests
	mv $(BIN)/manifests/role.yaml config/rbac/role.yaml
	set -e; for kind in memcacheds statefulsetdrains; do crd=config/crd/bases/cache.example.com_$$kind.yaml; \
	  go run ./hack/reference --slim $(BIN)/manifests/cache.example.com_$$kind.yaml >$(BIN)/manifests/crd.yaml; \
	  mv $(BIN)/manifests/crd.yaml $$crd; cp $$crd $(CHART)/files/crd_$$kind.yaml; \
	  go run ./hack/reference $$crd >$(BIN)/manifests/reference.md; \
	  page=reference; [ $$kind = memcacheds ] || page=reference-$$kind; mv $(BIN)/manifests/reference.md docs/$$page.md; done
	cp config/rbac/role.yaml $(CHART)/files/role.yaml
	cp config/policy/volume_policy.yaml config/prometheus/rules.yaml config/prometheus/dashboard.json config/prometheus/routers.json $(CHART)/files/
	@touch $(BIN)/manifests.made

# What they are made of, and they themselves. If none has changed, generating them again takes seconds for nothing.
$(BIN)/manifests.made: $(shell find api controllers drainer/routing hack/reference -name '*.go' ! -name '*_test.go') config/policy/volume_policy.yaml \
  $(wildcard config/prometheus/*.json) config/prometheus/rules.yaml \
  $(wildcard config/crd/bases/*.yaml) config/rbac/role.yaml $(wildcard docs/reference*.md) $(wildcard $(CHART)/files/*.yaml)
	$(MAKE) manifests

.PHONY: fmt
fmt: ## Format the Go code
	gofmt -w $$(git ls-files --cached --others --exclude-standard '*.go')

.PHONY: lint
lint: $(GOLANGCI_LINT) ## Lint the Go code; .golangci.yml also holds the layers
	$(GOLANGCI_LINT) run ./...
	@# These alone have calls that only Linux has, and tests of them.
	GOOS=darwin go vet ./drainer/... ./cmd/drainer ./test/internal/terminal ./test/statefulsets/... ./test/tied

.PHONY: verify
verify: generate manifests fmt lint alerts verify-chart verify-versions verify-ours ## Regenerate, format, lint, check the alerts and the chart; fail on a difference
	@test -z "$$(git status --porcelain)" || { git status --short; git --no-pager diff; \
	  echo "verify: generated or formatted files differ from what is committed: commit them"; exit 1; }

CHART_IMAGE := --set=image.repository=controller --set=image.tag=latest

.PHONY: verify-chart
verify-chart: $(BIN)/chart $(KUSTOMIZE) ## Compare what the Helm chart renders with config/
	$(KUSTOMIZE) build config/default >$(BIN)/default.yaml
	$(BIN)/chart $(CHART_IMAGE) $(CHART) $(BIN)/default.yaml
	$(KUSTOMIZE) build config/namespaced >$(BIN)/namespaced.yaml
	$(BIN)/chart $(CHART_IMAGE) --set=namespaced=true --set=crd.install=false $(CHART) $(BIN)/namespaced.yaml
	$(KUSTOMIZE) build config/namespaced-volumes >$(BIN)/namespaced-volumes.yaml
	$(BIN)/chart $(CHART_IMAGE) --set=namespaced=true --set=volumeRole.enabled=true --set=crd.install=false $(CHART) $(BIN)/namespaced-volumes.yaml

$(BIN)/chart: $(wildcard hack/chart/*.go) hack/chart/go.mod
	@cd hack/chart && go build -buildvcs=false -ldflags "-s -w" -o $@ .

$(BIN)/bundle: $(wildcard hack/bundle/*.go) hack/bundle/go.mod
	@cd hack/bundle && go build -buildvcs=false -ldflags "-s -w" -o $@ .

$(CONTROLLER_GEN):
	@$(call install,sigs.k8s.io/controller-tools/cmd/controller-gen)
$(KUSTOMIZE):
	@$(call install,sigs.k8s.io/kustomize/kustomize/v5)
$(GOLANGCI_LINT):
	@$(call install,github.com/golangci/golangci-lint/v2/cmd/golangci-lint)
$(KWOK):
	@$(call install,sigs.k8s.io/kwok/cmd/kwok)
$(GOTESTSUM):
	@$(call install,gotest.tools/gotestsum)
$(SYFT):
	@$(call install,github.com/anchore/syft/cmd/syft)

# install PACKAGE into $@, which is named TOOL-VERSION.
define install
echo "building $(notdir $@)"; \
GOBIN=$@.install go install $(1)@$(lastword $(subst -v, v,$@)); \
mv $@.install/* $@; rmdir $@.install
endef

##@ Test

# Which tests run: promises, the first tier, or all. Neither skips a test because something is missing (test/tier).
export TESTS ?= promises
# RUN=TestName, or TestName/subtest, runs that test alone.
RUN ?=
# Far more than an idle machine needs: no test has a bound of its own.
TEST_TIMEOUT ?= 30m
# Tests are linked without what only a debugger reads: linking is a good part of their CPU time. make lint vets them.
TEST_FLAGS := -ldflags='-s -w' -vet=off -count=1 -timeout=$(TEST_TIMEOUT) $(if $(RUN),-run='^$(subst /,$$/^,$(RUN))$$' -v)
# HALF=1 and HALF=2 have each second test of a folder.
HALF ?=
half_of = $(if $(HALF),-run="$$(hack/half.sh $(1) $(HALF))")
GO_TEST := go test $(TEST_FLAGS)
# The same with each test's output, and once more at the end that of those that failed.
GO_TEST_ALL := $(GOTESTSUM) --format=standard-verbose --hide-summary=skipped -- $(TEST_FLAGS)
# Tests write what they have counted here, for the end of `make test`.
export TEST_COUNTS := $(BIN)/test-counts.txt
# Real client libraries that no package of Debian's has.
export CLIENTS := $(BIN)/clients
# E2E=skip leaves the end-to-end tests out, on a machine that can't run a node.
E2E ?=

# Runs targets, and leaves nothing behind.
TESTRUN := $(BIN)/testrun --logs=$(BIN)/logs
$(BIN)/testrun: $(wildcard hack/testrun/*.go)
	@go build -buildvcs=false -ldflags "-s -w" -o $@ ./hack/testrun

# What tests need, made before their time counts. Tests run side by side, so the tree has to stay as it is from here on.
.PHONY: test-needs
test-needs: test-packages memcacheds clients kubernetes $(BIN)/kubectl-mc $(if $(filter skip,$(E2E)),build,images) $(BIN)/chart $(GOTESTSUM) $(KWOK) $(BIN)/testrun \
  $(if $(wildcard $(CONTROLLER_GEN)),$(BIN)/manifests.made)
	@mkdir -p $(BIN); : >$(TEST_COUNTS)

.PHONY: test
test: test-needs ## Show every promise once, on real parts, in twelve minutes; installs what it needs (E2E=skip: no real node)
	@# The node's tests mostly wait: the others run beside them.
	$(TESTRUN) --at-once=2 $(if $(filter skip,$(E2E)),,test-e2e) test-unit test-integration test-scale
	@cat $(TEST_COUNTS)

CRASHPOINTS := $(addprefix all-crashpoints-,1 2 3 4 5 6)
# The parts of make test-all, each of at most a quarter of an hour on two idle cores. Those of a real cluster are last.
ALL := all-model all-router-model all-fuzz all-properties all-member all-router all-router-pause all-move all-controllers \
  all-versions all-arm64 all-integration-1 all-integration-2 $(CRASHPOINTS) all-scale \
  all-e2e-1 all-e2e-2 all-chaos all-undeploy all-release all-upgrade all-cluster-down
# PARTS=model,fuzz runs these.
PARTS ?=
COMMA := ,
CHOSEN = $(if $(PARTS),$(addprefix all-,$(patsubst all-%,%,$(subst $(COMMA), ,$(PARTS)))),$(ALL))
ifneq ($(filter-out $(ALL),$(CHOSEN)),)
$(error there is no $(filter-out $(ALL),$(CHOSEN)); PARTS are of $(ALL:all-%=%))
endif

# WITHIN=25m ends it after that time, and FROM=TEXT chooses the part that it begins with.
.PHONY: test-all
test-all: test-all-needs ## Run everything: further modes, seeds, orders, libraries, versions, long explorations: hours, or PARTS=… WITHIN=25m FROM=…
	TESTS=all $(TESTRUN) $(if $(WITHIN),--within=$(WITHIN)) $(if $(FROM),--from=$(FROM)) $(CHOSEN)

# Compiled packages are kept, linked tests are not.
COMPILE_TESTS := go list -test -export

.PHONY: test-all-needs
test-all-needs: test-needs $(KUSTOMIZE) $(SYFT) ## Make what the parts of test-all need, before their time counts
	hack/packages.sh $(E2E_PACKAGES) $(ARM64_PACKAGES) $(STATE_PACKAGES)
	$(MAKE) memcacheds SUITES="$(VERSION_SUITES)"
	hack/prometheus.sh $(BIN)/prometheus-debian prometheus
	$(COMPILE_TESTS) ./... >/dev/null
	GOARCH=arm64 $(COMPILE_TESTS) $(ARM64) >/dev/null

# Packages of the drainer that are parts of their own.
MEMBER_PACKAGES := /(member|start|volume|snapshot|warmfile|export|oracle)($$|/)
ROUTER_PACKAGES := /router($$|/)

.PHONY: $(ALL)
all-member:
	$(MAKE) test-unit PACKAGES="$$(go list ./drainer/... | grep -E '$(MEMBER_PACKAGES)' | xargs)"
all-router:
	$(MAKE) test-unit PACKAGES="$$(go list ./drainer/... | grep -E '$(ROUTER_PACKAGES)' | xargs)"
all-move:
	$(MAKE) test-unit PACKAGES="$$(go list ./drainer/... | grep -vE '$(MEMBER_PACKAGES)|$(ROUTER_PACKAGES)' | xargs)"
all-controllers:
	$(MAKE) test-unit PACKAGES="$(filter-out ./drainer/...,$(UNIT))" WITH_MODULES=yes
all-integration-1 all-integration-2:
	$(MAKE) test-integration HALF=$(@:all-integration-%=%)
$(CRASHPOINTS):
	$(MAKE) test-crashpoints PART=$(@:all-crashpoints-%=%)
all-scale: test-scale
all-e2e-1 all-e2e-2:
	$(MAKE) test-e2e HALF=$(@:all-e2e-%=%)
all-chaos:
	$(MAKE) chaos MINUTES=8
all-undeploy: test-undeploy
all-release:
	$(MAKE) test-e2e RUN=TestAReleaseWorksFromItsFilesAlone
all-upgrade:
	$(MAKE) test-e2e RUN=TestAnUpgradeFromTheCommitBeforeUnderAScalingLosesNothing
all-cluster-down: test-cluster-down
all-versions: test-versions
all-arm64: test-arm64
all-properties: test-properties
all-router-pause: test-router-pause
all-model: test-model
all-fuzz: fuzz
all-router-model:
	$(MAKE) test-router-model SCENARIOS=24

.PHONY: alerts
alerts: ## Check the alert rules by promtool: each fires when it should, and is silent when not
	@set -o errexit; promtool=$$(hack/prometheus.sh $(BIN)/prometheus-debian promtool); \
	$$promtool check rules --lint-fatal config/prometheus/rules.yaml; \
	$$promtool test rules config/prometheus/rules_test.yaml

.PHONY: verify-versions
verify-versions: ## Check that Kubernetes is built with the manager's modules, so that what they share is compiled once
	@differ=$$(join <(go list -deps -f '{{with .Module}}{{.Path}} {{.Version}}{{end}}' ./cmd/manager | sort -u) \
	  <(cd test/cluster && go list -m -f '{{.Path}} {{with .Replace}}{{.Version}}{{else}}{{.Version}}{{end}}' all | sort -u) | awk '$$2 != $$3'); \
	test -z "$$differ" || { echo "go.mod and test/cluster/go.mod name other versions: go get the later ones"; echo "$$differ"; exit 1; }

.PHONY: verify-ours
verify-ours: ## Check that no file has the licence header or the copyright line of others
	@! git grep --untracked -nIiE 'copyright [^l]|\(c\) [12][0-9]{3}|SPDX-License|licensed (under|to)' -- . ':!LICENSE' ':!README.md' ':!Makefile' || \
	  { echo "verify-ours: these lines are of others: use their module, or write your own"; exit 1; }

.PHONY: test-packages
test-packages: # Debian's, of all tests at once: apt runs alone
	hack/packages.sh memcached redis-server strace libmemcached11 gcc libc6-dev libxxhash0 nutcracker python3-memcache python3-pymemcache \
	  python3-pylibmc default-jdk-headless libspymemcached-java ruby ruby-dalli zsh fish

# Debian's memcacheds of other suites, which some tests take as members, and one with 64-bit client flags.
SUITES ?= bullseye trixie
.PHONY: memcacheds
memcacheds: ## Fetch older and newer memcacheds of Debian's into bin/memcached-SUITE, build bin/memcached-large, and install neither
	@for suite in $(SUITES); do hack/memcached-suite.sh $(BIN)/memcached-$$suite $$suite; done
	@hack/packages.sh gcc libc6-dev libevent-dev
	@hack/memcached-large.sh $(BIN)/memcached-large trixie

.PHONY: clients
clients: $(addprefix $(CLIENTS)/,thanos dskit dskit-follow node_modules) ## Install the client libraries that tests use, into bin/clients

$(CLIENTS)/thanos $(CLIENTS)/dskit: $(CLIENTS)/%: $(wildcard test/clients/*/*.go test/clients/*/go.*)
	cd test/clients/$* && go build -buildvcs=false -ldflags "-s -w" -o $@ .

$(CLIENTS)/dskit-follow: $(wildcard drainer/routing/testdata/dskit/follow/*.go drainer/routing/testdata/dskit/go.*)
	cd drainer/routing/testdata/dskit && go build -buildvcs=false -ldflags "-s -w" -o $@ ./follow

$(CLIENTS)/node_modules: $(wildcard test/clients/elasticache/*)
	command -v npm >/dev/null || hack/packages.sh nodejs npm
	@mkdir -p $(CLIENTS)
	cp test/clients/elasticache/* $(CLIENTS)/
	cd $(CLIENTS) && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error
	@touch $@

UNIT := ./api/... ./cmd/... ./controllers/... ./drainer/... ./hack/testrun ./test/argocd ./test/chaos ./test/continuity ./test/internal/... ./test/invariants ./test/statefulsets/... ./test/tied ./test/tier ./version
# Modules of their own.
MODULES := test/cluster hack/image hack/chart
# Folders of the test that RUN names.
RUN_IN = $(sort $(dir $(shell git grep --untracked -lE '^func $(firstword $(subst /, ,$(RUN)))\>' -- api cmd controllers drainer hack test version)))
PACKAGES ?= $(if $(RUN),$(addprefix ./,$(filter-out $(addsuffix /%,$(MODULES)),$(RUN_IN))),$(UNIT))
# Packages of a module of its own that are tested: all, or the ones with RUN.
in_module = $(if $(RUN),$(patsubst $1/%,./%,$(filter $1/%,$(RUN_IN))),$(if $(or $(WITH_MODULES),$(if $(PACKAGES),$(if $(subst $(UNIT),,$(PACKAGES)),,yes))),./...))

.PHONY: test-unit
test-unit: test-packages memcacheds clients ## Run the unit tests, and the drainer against real memcached processes (RUN=TestName)
	@# Most of these tests wait for processes: more of them than CPUs run at once.
	$(if $(strip $(PACKAGES)$(foreach m,$(MODULES),$(call in_module,$m))),,$(error no test is named $(RUN)))
	$(if $(PACKAGES),TMPDIR=$${TMPDIR:-$$(hack/scratch.sh)} $(GO_TEST) -parallel=6 $(PACKAGES))
	$(foreach m,$(MODULES),$(if $(call in_module,$m),(cd $m && $(GO_TEST) $(call in_module,$m));))

.PHONY: test-model
test-model: $(GOTESTSUM) ## Explore the plan beside a model of the cluster with more going on, and ten times as many random histories: a quarter of an hour, several gigabytes
	$(GO_TEST_ALL) -run 'TestEveryOrderOfEvents|TestTheModelSeesAndDoesWhatProductionDoes' ./controllers/internal/model/ -model.long -model.pairs=60 -model.seed=0 | $(TEST_SUMMARY)
	$(GO_TEST_ALL) -run 'TestNothingWaitsInACircle|TestEveryOrderOfAStepsEvents' ./controllers/internal/plan/ -walk.seeds=200000 -walk.long | $(TEST_SUMMARY)

# Seeds of each property test; make test has 8 at most.
PROPERTY_SEEDS ?= 200
PROPERTIES := TestNothingIs|TestWhatever|TestEveryCopyIsWhole|TestASaveKilledAtAnyPoint

.PHONY: test-properties
test-properties: test-packages ## Let clients and servers do anything while items move, with 200 seeds: PROPERTY_SEEDS=…
	PROPERTY_SEEDS=$(PROPERTY_SEEDS) TMPDIR=$${TMPDIR:-$$(hack/scratch.sh)} $(GO_TEST) -run '$(PROPERTIES)' ./drainer/cli/ ./drainer/move/ ./drainer/export/ ./drainer/member/

# How many of the scenarios, chosen at random. 0: all, which takes hours.
SCENARIOS ?= 0

.PHONY: test-router-model
test-router-model: $(GOTESTSUM) ## Explore a ring change of routers with more going on: hours, several gigabytes (SCENARIOS=24 of 384)
	$(GO_TEST_ALL) -timeout=10h -run TestARingChangeShowsNoOldValueAndNoMiss ./drainer/ringchange/ \
	  -change.long -change.pick=$(SCENARIOS) | $(TEST_SUMMARY)

.PHONY: test-router-pause
test-router-pause: test-packages memcacheds ## Take two routers through ring changes under load, one five seconds behind the other
	$(GO_TEST) -run TestARingChangeThroughTwoRoutersIsNotSeen ./drainer/router/ -router.pause=5s

# How long each fuzz test runs.
FUZZTIME ?= 20s

.PHONY: fuzz
fuzz: ## Fuzz all that parses what others wrote, each for FUZZTIME
	hack/fuzz.sh $(FUZZTIME) drainer controllers

# Debian's suites whose memcacheds `make test-versions` tries; bullseye's is too old to be a member.
VERSION_SUITES ?= bullseye trixie unstable

.PHONY: test-versions
test-versions: ## Run the reader's, the writer's and the router's tests on Debian's other memcacheds: VERSION_SUITES=…
	$(MAKE) memcacheds SUITES="$(VERSION_SUITES)"
	@for suite in $(VERSION_SUITES); do echo "memcached of $$suite:"; \
	  case $$suite in bullseye) more=;; *) more="./drainer/internal/oracle/ ./drainer/memcache/";; esac; \
	  MEMCACHED=$(BIN)/memcached-$$suite/memcached $(GO_TEST) ./drainer/warmfile/ ./drainer/volume/ $$more; \
	  [ $$suite = bullseye ] || MEMCACHED_NEW=$(BIN)/memcached-$$suite/memcached $(GO_TEST) \
	    -run 'NoOtherClientHears|NeverARequest|MayBeNoreply|EachForm' ./drainer/router/; \
	done

# What reads memory that others wrote, and numbers of other sizes: the rest of the drainer is the same on each platform.
ARM64 := ./drainer/warmfile ./drainer/routing ./drainer/wire
ARM64_PACKAGES := qemu-user-static
.PHONY: test-arm64
test-arm64: ## Run the tests of the warm file, of rings and of the protocols on linux/arm64, by Debian's qemu-user
	hack/packages.sh $(ARM64_PACKAGES)
	@# memcached and the client libraries are this machine's.
	TMPDIR=$${TMPDIR:-$$(hack/scratch.sh)} GOARCH=arm64 $(GO_TEST) -exec=qemu-aarch64-static $(ARM64)

.PHONY: test-integration
test-integration: test-packages kubernetes clients $(BIN)/kubectl-mc $(BIN)/chart $(GOTESTSUM) ## Run the controllers against a real control plane (RUN=TestName)
	@# Garbage collection would take a tenth of the API server's CPU time.
	GOGC=400 $(GO_TEST_ALL) $(call half_of,test/integration) ./test/integration | $(TEST_SUMMARY)

.PHONY: test-crashpoints
test-crashpoints: kubernetes $(GOTESTSUM) ## Let every write of the operator fail in every way: an hour and a quarter (PART=1 to 6; SEED=… of how writes fail in make test)
	GOGC=400 $(GO_TEST_ALL) -run 'TestCrashPoints' ./test/integration/ $(addprefix -crashpoints.part=,$(PART)) $(if $(filter-out 0,$(SEED)),-crashpoints.seed=$(SEED),-crashpoints.all) | $(TEST_SUMMARY)

.PHONY: test-scale
test-scale: kubernetes build $(KWOK) $(GOTESTSUM) ## Count the manager's API writes beside fifty clusters, played by kwok
	SCALE_KWOK=$(KWOK) $(GO_TEST_ALL) ./test/scale/ | $(TEST_SUMMARY)

.PHONY: bench-scale
bench-scale: kubernetes build $(KWOK) ## Measure the manager beside a thousand clusters: a quarter of an hour
	go build -o $(BIN)/scale ./test/scale
	$(BIN)/scale --root=$(CURDIR) --kwok=$(KWOK) $(SCALE_FLAGS)

.PHONY: bench
bench: bench-drainer bench-latency ## Measure the drainer, and a scale-down on a real cluster

# memcached's own proxy is Debian's unstable one.
.PHONY: bench-router
bench-router: build ## Measure the router beside memcached's proxy, twemproxy and direct connections: a quarter of an hour (ROUTER_FLAGS=…)
	hack/packages.sh memcached nutcracker
	hack/memcached-suite.sh $(BIN)/memcached-unstable unstable
	go run ./test/router -drainer=$(BIN)/drainer -proxy=$(BIN)/memcached-unstable/memcached $(ROUTER_FLAGS)

.PHONY: bench-drainer
bench-drainer: build ## Measure the drainer beside what bounds it: ten minutes (BENCH_FLAGS="-short": one)
	hack/packages.sh memcached libmemcached-tools
	go build -o $(BIN)/bench ./test/bench
	$(BIN)/bench -drainer=$(BIN)/drainer $(BENCH_FLAGS)

# The libraries and programs of docs/guides.
E2E_PACKAGES := python3-django ruby-activesupport php-cli php-memcached netcat-openbsd
# Not empty, if tests that make releases run.
MAKES_RELEASES = $(and $(filter all,$(TESTS)),$(if $(RUN),$(findstring undeploy,$(RUN_IN)),$(if $(HALF),,all)))

# The cluster stays up: make cluster-down removes it. `make test` does, unless one was up before.
.PHONY: test-e2e
test-e2e: test-packages clients $(BIN)/chart $(BIN)/kubectl-mc $(GOTESTSUM) ## Run everything on a real node: kubelet, memcached, volumes, a client library (RUN=TestName)
	$(if $(filter all,$(TESTS)),hack/packages.sh $(E2E_PACKAGES))
	$(if $(MAKES_RELEASES),$(MAKE) $(KUSTOMIZE) $(SYFT))
	$(if $(filter all,$(TESTS)),hack/prometheus.sh $(BIN)/prometheus-debian prometheus)
	$(MAKE) cluster-deploy NODES=2
ifneq ($(RUN),)
	$(ON_CLUSTER) $(GO_TEST_ALL) $(addprefix ./,$(RUN_IN)) | $(TEST_SUMMARY)
else
	$(ON_CLUSTER) $(GO_TEST_ALL) $(call half_of,test/e2e) -parallel=8 ./test/e2e | $(TEST_SUMMARY)
	$(if $(HALF),,$(ON_CLUSTER) $(GO_TEST_ALL) ./test/e2e/undeploy | $(TEST_SUMMARY))
endif

.PHONY: test-undeploy
test-undeploy: $(BIN)/chart $(GOTESTSUM) ## Remove the operator from a real cluster in each phase of a drain
	$(MAKE) cluster-deploy NODES=2
	@# Parts of their own make releases.
	$(ON_CLUSTER) $(GO_TEST_ALL) -skip='^(TestARelease|TestAnUpgrade)' ./test/e2e/undeploy | $(TEST_SUMMARY)

.PHONY: draw-panels
draw-panels: ## Draw panels of the dashboard for the docs, from the data of a test on a real cluster
	TESTS=all PANELS=$(CURDIR)/docs/panels $(MAKE) test-e2e RUN=TestEachPanelHasData

.PHONY: draw-screen
draw-screen: ## Draw kubectl mc status -w in a scaling for the README, as a test on a real cluster has recorded it
	TESTS=all SCREEN=$(CURDIR)/docs/screen.svg $(MAKE) test-e2e RUN=TestAPersonPlansAndWatchesAScaling

# A seed of the clock, where none is given; a run prints its own.
SEED ?= 0
MINUTES ?= 10

.PHONY: chaos
chaos: ## Kill things at random under load on a real cluster, then look for every value: SEED=…, MINUTES=…
	$(MAKE) cluster-deploy NODES=2
	KUBECONFIG=$(LOCAL_KUBECONFIG) go run ./test/chaos --verbose --seed=$(SEED) --minutes=$(MINUTES)
	KUBECONFIG=$(LOCAL_KUBECONFIG) go run ./test/chaos --verbose --seed=$(SEED) --minutes=2 --moves=Off
	KUBECONFIG=$(LOCAL_KUBECONFIG) go run ./test/chaos --verbose --seed=$(SEED) --minutes=2 --routers
	KUBECONFIG=$(LOCAL_KUBECONFIG) go run ./test/chaos --verbose --seed=$(SEED) --minutes=2 --routers --in-pods

.PHONY: bench-latency
bench-latency: ## Measure the steps of a scale-down on a real cluster, of a Memcached and of another StatefulSet, and count its API writes: two minutes
	$(MAKE) cluster-deploy NODES=2
	KUBECONFIG=$(LOCAL_KUBECONFIG) go run ./test/latency

# The same image by another name, for a roll-out of another image.
$(BIN)/images/memcached-again.tar: $(BIN)/images/memcached.tar | $(BIN)/image
	@$(BIN)/image memcached --name=example.com/memcached:again --output=$@

.PHONY: bench-continuity
bench-continuity: images $(BIN)/images/memcached-again.tar ## Measure what an application sees of scalings, second by second, on a real cluster: hours, one to three minutes a row (CONTINUITY_FLAGS=…)
	$(MAKE) cluster-deploy NODES=2
	KUBECONFIG=$(LOCAL_KUBECONFIG) go run ./test/continuity --out=$(BIN)/continuity $(CONTINUITY_FLAGS)

# Leaves out lines that don't say how a run went.
TEST_SUMMARY := { grep --line-buffered -vE '^=== (RUN|PAUSE|CONT|NAME)' || true; }

.PHONY: demo
demo: ## Show it: three members shrink to two and keep every object (CLUSTER=existing: in KUBECONFIG; ROUTER=1: through routers, 3 to 2 to 3 under load)
ifeq ($(CLUSTER),existing)
	$(MAKE) deploy
	go run ./test/demo $(if $(ROUTER),--router) --kubectl=$(KUBECTL)
else
	$(MAKE) cluster-deploy
	KUBECONFIG=$(LOCAL_KUBECONFIG) go run ./test/demo $(if $(ROUTER),--router) --kubectl=$(LOCAL_KUBECTL)
	@echo "with"
	@echo "  export KUBECONFIG=$(LOCAL_KUBECONFIG)"
	@command -v kubectl >/dev/null || echo '  export PATH=$$PATH:$(dir $(LOCAL_KUBECTL))'
	@echo "  make cluster-down                            # remove all of it"
endif

##@ Cluster (a real Kubernetes node on this machine; Linux, root, Debian)

# The image that is made here from Debian's memcached, for a cluster without a registry.
DEBIAN_MEMCACHED_IMG := example.com/memcached:debian

# The manager of the cluster needs nothing but Go's standard library, so that
# it is there in seconds, and shows how it builds the rest.
.PHONY: $(BIN)/cluster
$(BIN)/cluster:
	@cd test/cluster && go build -buildvcs=false -o $@ ./cmd/cluster

$(BIN)/image: $(wildcard hack/image/*.go) hack/image/go.mod
	@cd hack/image && go build -buildvcs=false -ldflags "-s -w" -o $@ .

.PHONY: kubernetes
kubernetes: $(BIN)/cluster ## Build Kubernetes' programs into bin/k8s (KUBEBUILDER_ASSETS for envtest)
	@$(BIN)/cluster build --root=$(CURDIR)

# How many nodes cluster-up makes at least; it adds missing ones to a cluster that is up.
# bin/cluster node stop|start|remove node-2 does what the words say.
NODES ?= 1

.PHONY: cluster-up
cluster-up: $(BIN)/cluster ## Bring up a Kubernetes on this machine, of one node or NODES=2
	@$(BIN)/cluster up --root=$(CURDIR) --nodes=$(NODES)

.PHONY: cluster-status
cluster-status: $(BIN)/cluster ## Show which of its programs run, and where their logs are
	@$(BIN)/cluster status --root=$(CURDIR)

.PHONY: cluster-down
cluster-down: $(BIN)/cluster ## Remove it: processes, network, mounts, directories
	@$(BIN)/cluster down --root=$(CURDIR)

STATE_PACKAGES := iproute2 iptables

.PHONY: test-cluster-down
test-cluster-down: ## Bring a cluster up and remove it: the machine has to be as it was (removes one that is up)
	hack/packages.sh $(STATE_PACKAGES)
	$(MAKE) cluster-down
	hack/machine-state.sh save $(BIN)/machine-before.txt
	$(MAKE) cluster-up NODES=2
	$(MAKE) cluster-down
	hack/machine-state.sh compare $(BIN)/machine-before.txt

.PHONY: images
images: build $(BIN)/image $(BIN)/images/memcached.tar $(BIN)/images/redis.tar $(BIN)/images/spool.tar ## Build the operator's and memcached's images, without a container engine
	@$(BIN)/image operator --name=$(IMG) --manager=$(BIN)/manager --drainer=$(BIN)/drainer --output=$(BIN)/images/operator.tar

$(BIN)/images/memcached.tar: $(wildcard hack/image/*.go) | $(BIN)/image
	@$(BIN)/image memcached --name=$(DEBIAN_MEMCACHED_IMG) --output=$@

# Those of the samples of StatefulSetDrains: servers and drainers.
REDIS_IMG := example.com/redis:debian
SPOOL_IMG := example.com/spool:test

$(BIN)/images/redis.tar: $(wildcard test/statefulsets/*/*.go) $(wildcard hack/image/*.go) | $(BIN)/image
	@$(GO_BUILD) -o $(BIN)/redisdrain ./test/statefulsets/redisdrain
	@$(BIN)/image redis --name=$(REDIS_IMG) --program=$(BIN)/redisdrain --output=$@

$(BIN)/images/spool.tar: $(wildcard test/statefulsets/*/*.go) | $(BIN)/image
	@$(GO_BUILD) -o $(BIN)/spool ./test/statefulsets/spool
	@$(BIN)/image program --name=$(SPOOL_IMG) --program=$(BIN)/spool --output=$@

.PHONY: cluster-load
cluster-load: $(BIN)/cluster ## Load the images into the cluster, those that it doesn't have yet
	@$(BIN)/cluster load --root=$(CURDIR)

# Where cluster-up leaves the administrator's kubeconfig, and a kubectl.
LOCAL_KUBECONFIG := /var/lib/memcached-operator-cluster/kubeconfig
LOCAL_KUBECTL := /var/lib/memcached-operator-cluster/bin/kubectl
ON_CLUSTER := RELEASE_TOOLS="KUSTOMIZE=$(KUSTOMIZE) SYFT=$(SYFT)" PROMETHEUS=$(BIN)/prometheus-debian/usr/bin/prometheus \
  KUBECONFIG=$(LOCAL_KUBECONFIG) PATH=$(dir $(LOCAL_KUBECTL)):$$PATH

.PHONY: cluster-deploy
cluster-deploy: ## Bring it up with the operator of this tree deployed
	@# A cluster comes up with the images that there are.
	$(MAKE) images
	$(MAKE) cluster-up
	$(MAKE) cluster-load
	@# kubectl renders config/ as well as kustomize, and the manifests that are committed are
	@# those of the tree: a fresh machine need not compile two more programs.
	$(if $(wildcard $(CONTROLLER_GEN)),$(MAKE) $(BIN)/manifests.made)
	@# The tag stays, the image behind it may be another one.
	KUBECONFIG=$(LOCAL_KUBECONFIG) $(MAKE) apply RENDER="$(LOCAL_KUBECTL) kustomize" DEPLOY_WAIT=15m MEMCACHED_IMG=$(DEBIAN_MEMCACHED_IMG) KUBECTL=$(LOCAL_KUBECTL) \
	  IMG_CONTENT=$$(sha256sum <$(BIN)/images/operator.tar | cut --characters=1-16)

##@ Deploy (to the cluster in KUBECONFIG)

.PHONY: install
install: manifests $(KUSTOMIZE) ## Install the CRD
	$(KUSTOMIZE) build config/crd | $(KUBECTL) apply --server-side -f -

.PHONY: uninstall
uninstall: $(KUSTOMIZE) ## Remove the CRD, and every Memcached with it
	$(KUSTOMIZE) build config/crd | $(KUBECTL) delete --ignore-not-found -f -

.PHONY: run
run: build ## Run the manager here, against the cluster in KUBECONFIG
	OPERATOR_IMAGE=$(IMG) MEMCACHED_IMAGE=$(or $(MEMCACHED_IMG),docker.io/library/memcached:1.6) \
	  $(BIN)/manager --log-format=console --metrics-bind-address=0

.PHONY: deploy
deploy: manifests $(KUSTOMIZE) ## Deploy the operator: IMG=…, MEMCACHED_IMG=…
	$(MAKE) apply

RENDER := $(KUSTOMIZE) build

# How long the operator may take to start: pulling its image is a part of it.
DEPLOY_WAIT ?= 120s

.PHONY: apply
apply: # what deploy does, by the manifests that are there
	hack/overlay.sh bin/deploy $(IMG) "$(MEMCACHED_IMG)" $(IMG_CONTENT)
	$(RENDER) bin/deploy | $(KUBECTL) apply --server-side -f -
	$(KUBECTL) -n memcached-operator-system rollout status deployment/memcached-operator-manager --timeout=$(DEPLOY_WAIT)

# How long the running operator may take to remove its finalizers.
UNDEPLOY_WAIT ?= 60s

.PHONY: undeploy
undeploy: build ## Remove the operator, every Memcached and StatefulSetDrain; claims stay, without finalizers
	hack/overlay.sh bin/deploy $(IMG) $(MEMCACHED_IMG)
	KUBECTL=$(KUBECTL) UNDEPLOY_WAIT=$(UNDEPLOY_WAIT) hack/undeploy.sh bin/deploy $(BIN)/manager

.PHONY: build-installer
build-installer: manifests $(KUSTOMIZE) ## Write dist/install.yaml: all of it in one file
	hack/overlay.sh bin/deploy $(IMG) $(MEMCACHED_IMG)
	mkdir -p dist
	$(KUSTOMIZE) build bin/deploy >dist/install.yaml

##@ Release

.PHONY: release
release: $(BIN)/image $(BIN)/bundle $(KUSTOMIZE) $(SYFT) ## Make a release in bin/release: VERSION=v1.2.3, REGISTRY=registry.example.com/team, MEMCACHED_IMG=…@sha256:…; the same commit gives the same bytes
	KUSTOMIZE=$(KUSTOMIZE) SYFT=$(SYFT) MEMCACHED_IMG="$(MEMCACHED_IMG)" hack/release.sh $(VERSION)
