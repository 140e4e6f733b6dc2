# The commands of a developer; `make` alone lists them. CONTRIBUTING.md says when to use which.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help demo test test-peers smoke check lint clippy deny deny-advisories bench fuzz

CARGO ?= cargo
OUT := $(or $(CARGO_TARGET_DIR),target)
# One selection for all targets: without the tests' dependencies tokio and regex have other features, and all that uses them is compiled again.
BUILD := build --workspace --bins --tests
# What `probe kv` compares our journal with; off by default, on wherever the kit is tested.
ENGINES := --features stentor-kit/engines
FUZZ_TARGETS := $(notdir $(basename $(wildcard testing/fuzz/fuzz_targets/*.rs)))
# Tests at a time. Not the number of processors: most tests wait for the server and use none.
TEST_THREADS ?= 5
# Seconds for each fuzz target.
FUZZ_SECONDS ?= 60

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: ## build, then post to a list in a simulated Internet; ARGS="--message FILE --subscribers FILE"
	$(CARGO) build --profile demo -p stentor -p stentor-kit --no-default-features
	$(OUT)/demo/stentor-kit demo $(ARGS)

# Clippy needs nothing that is installed, so it runs meanwhile.
test: ## install what the tests need (as root), then everything that CI runs
	bash testing/install.sh & installing=$$!; $(MAKE) --no-print-directory clippy; wait $$installing
	$(MAKE) --no-print-directory lint
	$(CARGO) $(BUILD) $(ENGINES)
	$(CARGO) test --workspace --doc $(ENGINES)
	STENTOR_BIN=$(abspath $(OUT))/debug/stentor RUST_TEST_THREADS=$(TEST_THREADS) $(CARGO) test --workspace --lib --bins --tests $(ENGINES)
	$(MAKE) --no-print-directory smoke

smoke: ## every benchmark once and small: does it still work? (as root; a debug build will do)
	$(CARGO) $(BUILD) $(ENGINES)
	python3 -B -m unittest discover -q -s bench
	python3 bench/run.py --smoke --binary $(abspath $(OUT))/debug/stentor $(if $(ONLY),--only $(ONLY))

test-peers: ## our tables, sendmail, milters and signatures beside the real programs of others, which it installs (as root): no difference
	bash testing/install.sh --peers
	$(CARGO) $(BUILD) $(ENGINES)
	python3 bench/run.py --peers --binary $(abspath $(OUT))/debug/stentor $(if $(ONLY),--only $(ONLY))

check: lint ## lint and unit tests, without the real binary's tests
	$(CARGO) test --workspace --lib --bins --tests --exclude stentor-server-tests --exclude stentor-kit-tests $(ENGINES)

lint: clippy ## format, lints, import cycles, sizes, documents, signatures, names and doc links
	python3 -B -m unittest discover -q -s testing/checks
	python3 -B testing/checks/cycles.py
	python3 -B testing/checks/sizes.py
	python3 -B testing/checks/paths.py
	python3 -B testing/checks/pages.py
	python3 -B testing/checks/signatures.py
	python3 -B testing/checks/twins.py
	python3 -B testing/checks/doc_links.py
	$(CARGO) fmt --all --check

clippy:
	$(CARGO) clippy --workspace --all-targets $(ENGINES) -- -D warnings

deny: ## licences, duplicates and sources of our dependencies (installs cargo-deny if it is missing)
	@command -v cargo-deny >/dev/null || $(CARGO) install --locked cargo-deny
	cargo-deny check bans licenses sources

deny-advisories: ## known weaknesses of our dependencies; fetches the advisory database
	@command -v cargo-deny >/dev/null || $(CARGO) install --locked cargo-deny
	cargo-deny check advisories

bench: ## side by side with Postfix (as root); ONLY=path.relay runs a part, ROUNDS=3 less of it
	bash testing/install.sh
	$(CARGO) build --release --workspace --bins $(ENGINES)
	python3 bench/run.py $(if $(ONLY),--only $(ONLY)) $(if $(ROUNDS),--rounds $(ROUNDS))

fuzz: ## every parser for FUZZ_SECONDS=60 each, or one: TARGET=headers (needs a nightly compiler)
	@command -v cargo-fuzz >/dev/null || $(CARGO) install --locked cargo-fuzz
	for target in $(or $(TARGET),$(FUZZ_TARGETS)); do \
		$(CARGO) +nightly fuzz run --fuzz-dir testing/fuzz $$target -- -max_total_time=$(FUZZ_SECONDS); \
	done
