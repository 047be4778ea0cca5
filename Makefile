# Everything a developer or CI runs. `make help` lists the targets. GNU Make 4.3.

.DEFAULT_GOAL := build
.DELETE_ON_ERROR:
# Output in order; ffi/ builds in parallel by itself if asked to.
.NOTPARALLEL:
MAKEFLAGS += --no-print-directory

ARCH := $(shell uname -m)
BIN := node_modules/.bin
BUN := $(BIN)/bun
DEPS := node_modules/.installed
VERSION = $(shell node -p 'require("./package.json").version')

# Debian packages that building ffi/ and the tests use.
TOOLS := clang-14 lld-14 clang-format-14 clang-tidy-14 libclang-rt-14-dev cppcheck bubblewrap \
	python3 git curl openssl libseccomp-dev python3-numpy perl \
	python3-pandas libpython3.11-testsuite podman runc xz-utils vim-tiny procps \
	protobuf-compiler python3-protobuf python3-grpcio spin iptables iproute2 openssh-server

# What building and booting virtual machines needs besides.
VM_TOOLS := qemu-system-x86 cpio e2fsprogs

# Every file that starts as a Bun Worker is an entry point of its own.
ENTRIES := src/main.ts src/store/store-worker.ts
SOURCES := $(shell find src public proto ffi -type f 2>/dev/null)
C_FILES := $(wildcard ffi/*.[ch] test/ffi/*.[ch] test/ffi/fuzz/*.[ch])

# --disallow-code-generation-from-strings: no eval, and neither BUN_OPTIONS nor BUN_INSPECT can
# make the binary run a file or open a debugger. It needs the `=`; with a space it is weaker.
# The outfile is always named cprg, because its name is part of the binary.
COMPILE = $(BUN) build --compile --production --minify --sourcemap --bytecode --format=esm \
	--no-compile-autoload-dotenv --no-compile-autoload-bunfig --reject-unresolved \
	--compile-exec-argv="--disallow-code-generation-from-strings=strict" \
	--define CPRG_VERSION='"$(VERSION)"' $(ENTRIES)

##@ Build and run

.PHONY: build
build: dist/cprg ## Build dist/cprg, the executable (default)

# The source map is inside the binary too; the one beside it is not kept.
dist/cprg: $(DEPS) $(SOURCES) Makefile package.json | ffi
	@mkdir -p dist/obj/host
	$(COMPILE) --outfile dist/obj/host/cprg
	@mv dist/obj/host/cprg $@
	@rm -rf dist/obj/host

.PHONY: deps
deps: $(DEPS) ## Install Bun and the dependencies from npm, as package-lock.json pins them

# Bun's npm package fetches nothing, but its install script must run; it does so here even where
# npm is told to ignore scripts.
$(DEPS): package-lock.json
	npm ci --no-audit --no-fund
	@$(BUN) --version >/dev/null 2>&1 || node node_modules/bun/install.js
	@$(BUN) --version >/dev/null
	@touch $@

.PHONY: ffi
ffi: ## Build the C shim into dist/ffi/ARCH
	@$(MAKE) -C ffi OUT=$(CURDIR)/dist/ffi/$(ARCH) ARCH=$(ARCH)

.PHONY: serve
serve: build ## Build, then run the server
	dist/cprg serve

.PHONY: demo
demo: build ## Build, then run a Python program in a sandbox through the HTTP API
	@$(BUN) test/demo.ts

.PHONY: release
release: $(DEPS) ## Build for linux-x64 and linux-arm64 into dist/release, with checksums
	@$(MAKE) ffi ARCH=x86_64
	@$(MAKE) ffi ARCH=aarch64
	@rm -rf dist/release dist/obj
	@mkdir -p dist/release
	@set -e; for target in linux-x64 linux-arm64; do \
		$(COMPILE) --target=bun-$$target --outfile dist/obj/$$target/cprg; \
		mv dist/obj/$$target/cprg dist/release/cprg-$(VERSION)-$$target; \
	done
	@rm -rf dist/obj
	@cd dist/release && sha256sum cprg-* > SHA256SUMS && cat SHA256SUMS

.PHONY: clean
clean: ## Remove everything that was built
	rm -rf dist

##@ Check and test

.PHONY: check
check: $(DEPS) ffi ## Format, lint, types, unit and architecture tests; needs no root
	$(BIN)/biome check --error-on-warnings
	$(BIN)/tsc
	cd proto && ../$(BIN)/buf lint && ../$(BIN)/buf format --diff --exit-code
	@if ! command -v clang-format-14 >/dev/null; then \
		echo "clang-format-14 is missing: C format not checked (make tools installs it)"; \
	elif [ -n "$(C_FILES)" ]; then \
		echo "clang-format-14 --dry-run -Werror $(C_FILES)"; \
		clang-format-14 --dry-run -Werror $(C_FILES); \
	fi
	$(BUN) test --timeout 30000 ./test/unit/ ./test/arch/

.PHONY: fmt
fmt: $(DEPS) ## Format TypeScript, JSON, CSS, proto and C in place
	$(BIN)/biome check --write
	cd proto && ../$(BIN)/buf format --write
	@if ! command -v clang-format-14 >/dev/null; then \
		echo "clang-format-14 is missing: C not formatted (make tools installs it)"; \
	elif [ -n "$(C_FILES)" ]; then clang-format-14 -i $(C_FILES); fi

.PHONY: tidy
tidy: ## Check the C with clang-tidy, for both machines
	@$(MAKE) -C ffi tidy

FUZZ_SECONDS ?= 60
.PHONY: fuzz
fuzz: $(DEPS) ## Fuzz what parses in ffi/, FUZZ_SECONDS (60) for each target
	@$(BUN) test/ffi/fuzz/run.ts --seconds=$(FUZZ_SECONDS)

.PHONY: gen
gen: $(DEPS) ## Write src/gen from proto/, the tables of system call numbers, and of settings in INSTALL.md
	@$(BUN) test/gen/write-protobuf.ts
	@$(BUN) test/gen/settings-table.ts
	@$(BUN) test/gen/write-syscall-tables.ts

.PHONY: test
test: tools build ## Run every suite; as root, first install what the tests need
	@$(BUN) test/run.ts

.PHONY: test-unit
test-unit: $(DEPS) ffi ## Run the unit and architecture suites
	@$(BUN) test/run.ts unit arch

.PHONY: test-sandbox
test-sandbox: $(DEPS) ffi ## Run the suites that use the real kernel
	@$(BUN) test/run.ts ffi sandbox

.PHONY: test-rootless
test-rootless: $(DEPS) ffi ## Run the sandbox suite as a user; as root, as one that owns nothing here
	@$(BUN) test/run.ts rootless

.PHONY: test-e2e
test-e2e: build ## Run the suite that uses the compiled binary
	@$(BUN) test/run.ts e2e

.PHONY: test-vm
test-vm: TOOLS = $(VM_TOOLS)
test-vm: tools build ## Run the sandbox suite in virtual machines: cgroup v2 as root, as a user, cgroup v1
	@$(BUN) test/vm/run.ts $(GROUNDS)

.PHONY: test-grounds
test-grounds: ## The same on this machine too, as root and as a user: five grounds with the same tests
	@$(MAKE) test-vm GROUNDS=all

.PHONY: test-vm-arm64
test-vm-arm64: TOOLS = $(VM_TOOLS) qemu-system-arm clang-14 lld-14
test-vm-arm64: tools build dist/aarch64/cprg ## Run the sandbox suite on an emulated aarch64; long
	@$(BUN) test/vm/run.ts arm64-v2-root

dist/aarch64/cprg: $(DEPS) $(SOURCES) Makefile package.json
	@$(MAKE) ffi ARCH=aarch64
	@mkdir -p dist/obj/aarch64 dist/aarch64
	$(COMPILE) --target=bun-linux-arm64 --outfile dist/obj/aarch64/cprg \
		--compile-executable-path="$$($(BUN) test/vm/fetch-bun.ts aarch64)"
	@mv dist/obj/aarch64/cprg $@
	@rm -rf dist/obj/aarch64

.PHONY: test-cpython
test-cpython: tools $(DEPS) ffi ## Run CPython's own regression tests, inside and outside (30 minutes)
	@CPRG_CPYTHON=full $(BUN) test ./test/compat/cpython.test.ts

# Seconds after which a route gets no more than 200 requests; the tests say how many each got.
FUZZ_ROUTE_SECONDS ?= 15
.PHONY: test-api
test-api: tools build ## Fuzz every route at length, and hold 5000 idle WebSockets (half an hour at most)
	@CPRG_FUZZ_SEED=$$(date +%s) CPRG_FUZZ_REQUESTS=2000 CPRG_FUZZ_ROUTE_SECONDS=$(FUZZ_ROUTE_SECONDS) $(BUN) test ./test/http/fuzz.test.ts
	@CPRG_FUZZ_SEED=$$(date +%s) CPRG_FUZZ_REQUESTS=400 CPRG_FUZZ_ROUTE_SECONDS=$(FUZZ_ROUTE_SECONDS) $(BUN) test ./test/e2e/fuzz.test.ts
	@CPRG_IDLE_SOCKETS=5000 $(BUN) test ./test/e2e/hostile-clients.test.ts

.PHONY: test-model
test-model: tools $(DEPS) ## Search the models with spin, and simulate the same with seeds
	@$(BUN) test/run.ts model sim

.PHONY: test-bridge-long
test-bridge-long: build ## Simulate 10 000 seeds, send a million random frames, read 1 GiB slowly
	@CPRG_SIM_SEEDS=10000 $(BUN) test --timeout 1800000 ./test/sim/
	@CPRG_BRIDGE_FUZZ_FRAMES=1000000 $(BUN) test --timeout 1800000 ./test/bridge/fuzz.test.ts
	@CPRG_SLOW_READER_MIB=1024 $(BUN) test --timeout 1800000 ./test/bridge/slow-reader.test.ts
	@CPRG_SLOW_READER_MIB=1024 $(BUN) test --timeout 1800000 ./test/worker/slow-reader.test.ts

.PHONY: test-long
test-long: test-server-long test-api test-bridge-long test-cpython test-grounds test-vm-arm64 ## Run what takes too long for make test

.PHONY: test-server-long
test-server-long: tools build ## Kill the server 50 times under load, then run 10 000 jobs
	@$(BUN) test/long/run.ts $(TIERS)

.PHONY: bench
bench: build ## Measure against floors and peers, side by side; writes test/bench/results
	@$(BUN) test/bench/run.ts

##@ Look after

.PHONY: tools
tools: ## As root on Debian, install the packages that the tests need; else name the missing ones
	@missing=; for package in $(TOOLS); do \
		dpkg -s $$package 2>/dev/null | grep -q '^Status: install ok installed' \
			|| missing="$$missing $$package"; \
	done; \
	if [ -z "$$missing" ]; then \
		echo "tools: all installed"; \
	elif [ "$$(id -u)" -eq 0 ] && command -v apt-get >/dev/null; then \
		echo "tools: installing$$missing"; \
		export DEBIAN_FRONTEND=noninteractive; \
		apt-get update -qq && apt-get -o DPkg::Lock::Timeout=300 install -qq -y --no-install-recommends $$missing; \
	else \
		echo "tools: missing$$missing (as root on Debian, make tools installs them)"; \
	fi

define LIST_LICENCES
const { packages } = require("./package-lock.json");
const allowed = new Set(["MIT", "ISC", "0BSD", "BSD-2-Clause", "BSD-3-Clause", "Apache-2.0"]);
const shipped = Object.entries(packages).filter(([path, entry]) => path && !entry.dev);
const parts = (licence) => licence.replace(/[()]/g, "").split(/ AND /);
for (const [path, { version, license = "none" }] of shipped) {
  const isAllowed = parts(license).every((part) => part.split(/ OR /).some((one) => allowed.has(one)));
  console.log(path.replace(/^.*node_modules\//, ""), version, license, isAllowed ? "" : "NOT ALLOWED");
  if (!isAllowed) process.exitCode = 1;
}
endef
export LIST_LICENCES

.PHONY: audit
audit: $(DEPS) ## List licences and advisories of the dependencies that ship
	@node -e "$$LIST_LICENCES"
	@report=$$(npm audit --omit=dev --json 2>/dev/null) || true; \
	case "$$report" in \
	*auditReportVersion*) npm audit --omit=dev ;; \
	*) echo "the npm registry in use answers no audit request: advisories not checked" ;; \
	esac

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' \
		'/^##@ / { printf "\n%s\n", substr($$0, 5) } \
		/^[a-z][a-z0-9-]*:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
