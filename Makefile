# The front door: `make help` lists what there is. The build itself is CMake's (CMakePresets.json).
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# Compile jobs: one per core, but never more than memory allows (about 1.5 GB a job).
JOBS ?= $(shell n=$$(nproc); m=$$(awk '/MemAvailable/ {print int($$2/1500000)}' /proc/meminfo); \
          echo $$(( m < 1 ? 1 : (m < n ? m : n) )))
FUZZ_SECONDS ?= 120
INTENTKV := build/release/intentkv

.PHONY: help setup build model demo test lint format bench bench-peers check-asan check-tsan fuzz serve clean

help: ## This list
	@echo "IntentKV: make TARGET"
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-12s %s\n", $$1, $$2}' Makefile

setup: ## Install what is missing: Debian packages, Python environment; check the Rust toolchain
	@tools/setup.sh

build: setup ## Release build: build/release/intentkv
	@tools/build.sh release $(JOBS)

model: build ## Fetch SmolLM2-135M-Instruct (98 MB) into models/, checked by SHA-256
	@echo "== model: smollm2"
	@$(INTENTKV) model get smollm2

demo: model ## A real conversation on real weights
	@tools/demo.sh $(INTENTKV)

test: ## Everything: build, sanitizer builds, short fuzz runs, lint, all tests
	@tools/test.sh $(JOBS)

lint: build ## clang-format, clang-tidy, layer rules, source rules
	@echo "== lint"
	@ctest --test-dir build/release -L '^lint$$' --output-on-failure

format: setup ## Format the C++ sources in place
	@tools/format.sh

bench: model ## Speed of this machine: table, and JSON under bench/results/
	@tools/bench.sh $(INTENTKV)

bench-peers: model ## The same beside llama.cpp, built outside this tree
	@bench/peers/run.sh

check-asan: setup ## Tests under AddressSanitizer and UndefinedBehaviorSanitizer
	@tools/sanitize.sh asan-ubsan $(JOBS)

check-tsan: setup ## Tests of the threaded layers under ThreadSanitizer
	@tools/sanitize.sh tsan $(JOBS)

fuzz: setup ## libFuzzer targets, FUZZ_SECONDS (120) each
	@tools/fuzz.sh $(FUZZ_SECONDS) $(JOBS)

serve: model ## OpenAI-compatible server on http://127.0.0.1:8080 (SERVE_FLAGS adds flags)
	@$(INTENTKV) serve --model models/smollm2-135m-instruct-q4_1.gguf $(SERVE_FLAGS)

clean: ## Remove build/ (keeps models/ and .venv)
	rm -rf build
