# Everything here installs what it needs first (scripts/setup, through sudo where you are not root).
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

PREFIX     ?= /usr/local
SYSCONFDIR ?= /etc
DESTDIR    ?=
# Seconds for each fuzz target
SECONDS_EACH ?= 60
# Options of `sidestep-lab bench`, and of `sidestep-lab experiment all`
BENCH ?=
EXPERIMENTS ?=

CARGO_HOME ?= $(HOME)/.cargo
export PATH := $(CARGO_HOME)/bin:$(PATH):/usr/local/sbin:/usr/sbin:/sbin
TARGET := $(abspath $(or $(CARGO_TARGET_DIR),target))
SIDESTEP_BIN := $(TARGET)/release/sidestep
SIDESTEP_LAB_BIN := $(TARGET)/release/sidestep-lab
# As it is installed: its debug information is in a file beside it.
INSTALLED := $(TARGET)/installed/sidestep
# What runs it, if it is for another processor
RUN ?=
SHIPPED := SIDESTEP_BIN=$(SIDESTEP_BIN) SIDESTEP_LAB_BIN=$(SIDESTEP_LAB_BIN)
# sudo resets PATH and the environment: both are handed on where a command runs as root.
# Continuous integration builds what was committed, nothing newer.
LOCKED := $(if $(CI),--locked)
AS_ROOT := $(if $(filter 0,$(shell id -u)),,sudo -E env "PATH=$(PATH)")

.PHONY: help
help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## the program, target/release/sidestep
	@scripts/setup build
	cargo build --release $(LOCKED) --package sidestep
	scripts/separate-debug $(SIDESTEP_BIN) $(INSTALLED)

.PHONY: lab
lab: ## the program and its laboratory, target/release/sidestep-lab
	@scripts/setup build
	cargo build --release $(LOCKED) --package sidestep --package bench

.PHONY: deb
deb: $(INSTALLED) ## the Debian package, target/packages/sidestep.deb
	@scripts/setup packages
	packaging/package-deb $(INSTALLED) $(TARGET)/packages

# The programs that need no library, for these kinds of processors: ARCHS=x86_64 makes packages of one kind only
ARCHS ?= x86_64 aarch64
STATIC := $(TARGET)/static/sidestep-
# As OpenWrt tells processors apart
OPENWRT_x86_64  := x86_64
OPENWRT_aarch64 := aarch64_generic aarch64_cortex-a53 aarch64_cortex-a72 aarch64_cortex-a76
.PHONY: packages
packages: deb $(addprefix $(STATIC),$(ARCHS)) ## packages for Debian, RPM systems and OpenWrt, and an image for containers, in target/packages
	@scripts/setup packages
	$(foreach arch,$(ARCHS),packaging/package-rpm $(STATIC)$(arch) $(arch) $(TARGET)/packages && \
		packaging/package-ipk $(STATIC)$(arch) $(TARGET)/packages $(OPENWRT_$(arch)) &&) true
	packaging/package-oci $(TARGET)/packages $(foreach arch,$(ARCHS),$(arch)=$(STATIC)$(arch))

.PHONY: test-packages
test-packages: $(INSTALLED) $(addprefix $(STATIC),$(ARCHS)) ## each package where it belongs: two clean machines, a root, a container (as root); the Ansible role
	@scripts/setup packages
	$(AS_ROOT) packaging/test-deb $(INSTALLED)
	$(AS_ROOT) packaging/test-rpm $(STATIC)x86_64
	$(AS_ROOT) packaging/test-ipk $(STATIC)x86_64
	$(AS_ROOT) packaging/test-oci $(foreach arch,$(ARCHS),$(STATIC)$(arch))
	contrib/ansible/test $(INSTALLED)

.PHONY: test-metrics
test-metrics: lab ## metrics, alert rules and dashboard on a live Prometheus, with two gateways through faults (as root)
	@scripts/setup lab metrics
	$(AS_ROOT) contrib/prometheus/test $(SIDESTEP_BIN) $(SIDESTEP_LAB_BIN)

$(STATIC)%:
	@scripts/setup build static
	scripts/static $*

.PHONY: test-annotations
test-annotations: ## annotations of the scripts' library, with a checker of them built from crates.io
	cargo build $(LOCKED) --package sidestep
	scripts/test-annotations

.PHONY: test-page
test-page: ## the page in a real Chromium; as root also about a lab of twenty peers
	@scripts/setup build lab web
	cargo build $(LOCKED) --package sidestep --package bench
	$(AS_ROOT) scripts/test-page

.PHONY: screenshots
screenshots: ## redraws the pictures of the page in docs/
	@scripts/setup build web
	scripts/test-page --pictures

.PHONY: static
static: ## the program for x86_64 and aarch64 without any library of the system, target/static
	@scripts/setup build static
	scripts/static

.PHONY: demo
demo: lab ## two gateways and a router between them in a lab, watched live; leaves report/index.html
	@scripts/setup lab
	mkdir -p report
	$(AS_ROOT) $(SIDESTEP_LAB_BIN) demo --report report

.PHONY: test
test: ## what every change runs, in a quarter of an hour: unit, property, simulation, each scenario on this kernel (as root)
	@scripts/setup build lab test
	SIDESTEP_SCALE=quick scripts/run-tests

.PHONY: test-full
test-full: lab ## the same tests at full length, with floods and speed, on the release build
	@scripts/setup lab test peers
	$(SHIPPED) SIDESTEP_SCALE=full SIDESTEP_PATIENCE=1200 scripts/run-tests

# Options of the simulation of a fleet
FLEET ?=
.PHONY: fleet-figures
fleet-figures: ## fleets in virtual time: what sites and controllers need
	@scripts/setup build
	# Thousands of agents in one process are millions of small blocks: a thousand sites took 56 s with this, and 67 s without.
	GLIBC_TUNABLES=glibc.malloc.tcache_count=65535:glibc.malloc.hugetlb=1 \
		cargo run --release $(LOCKED) --package fleet-simulation -- $(FLEET)

# Seconds of `make soak`
SOAK ?= 3600
.PHONY: soak
soak: lab ## hostile traffic against live gateways, and a fleet without controllers, for SOAK=3600 seconds
	@scripts/setup lab test
	$(SHIPPED) SIDESTEP_SCALE=full SIDESTEP_SOAK=$(SOAK) SIDESTEP_PATIENCE=$$(($(SOAK) + 600)) \
		scripts/run-tests --package acceptance -- ::soak --nocapture

.PHONY: test-all
test-all: ## everything: test-full, fuzz targets, static builds, the stock kernel; says at its end what ran
	scripts/test-all

.PHONY: models
models: ## symbolic models of handshake and rekey, with what must hold and what must fail (docs/models.md)
	@scripts/setup build
	models/run

.PHONY: test-stock-kernel
test-stock-kernel: lab ## the kernel-facing tests on Debian's stock kernel, in a virtual machine
	@scripts/setup lab test stock-kernel
	$(SHIPPED) scripts/stock-kernel/run-tests

.PHONY: bench
bench: lab ## beside no tunnel and other tunnels, 25 minutes (BENCH=--quick: 3); leaves report/bench
	@scripts/setup lab bench
	mkdir -p report/bench
	$(AS_ROOT) env "PATH=$(TARGET)/tools:$(PATH)" $(SIDESTEP_LAB_BIN) bench --report report/bench $(BENCH)

.PHONY: experiments
experiments: lab ## the test plan that MT6D was measured with, half an hour; leaves report/experiments
	@scripts/setup lab experiments
	scripts/contenders wireguard-go
	mkdir -p report
	$(AS_ROOT) env "PATH=$(TARGET)/tools:$(PATH)" $(SIDESTEP_LAB_BIN) experiment all $(EXPERIMENTS)

# Options of `sidestep-lab adversary`
ADVERSARY ?=
.PHONY: adversary
adversary: lab ## how well an observer follows one of 16 pairs, in five minutes (ADVERSARY=--quick: 1); leaves report/adversary
	@scripts/setup lab adversary
	mkdir -p report/adversary
	$(AS_ROOT) $(SIDESTEP_LAB_BIN) adversary --report report/adversary $(ADVERSARY)

.PHONY: adversary-active
adversary-active: lab ## what somebody on the path learns by what he does, and whether he can tell that it is Sidestep, a quarter of an hour
	@scripts/setup lab adversary
	scripts/captures
	$(AS_ROOT) $(SIDESTEP_LAB_BIN) adversary attack --pairs 20 --tries 40 --docs docs/active-adversary.md
	$(AS_ROOT) $(SIDESTEP_LAB_BIN) adversary recognise --foreign $(TARGET)/captures/ndpi-4.2-2 --docs docs/active-adversary.md

.PHONY: bench-code
bench-code: ## what the code costs by itself: sealing, opening, segmentation, coalescing, deriving, packet scripts, TCP; many peers
	@scripts/setup build
	cargo bench $(LOCKED) --package sidestep-wire --package sidestep-mt6d --package script --package stack
	cargo run --release $(LOCKED) --package sidestep-mt6d --example peers
	cargo run --release $(LOCKED) --package sidestep-mt6d --example peers_wiped

.PHONY: lint
lint: style clippy ## formatting, clippy, directions of imports, licences and sources of dependencies, shell scripts

# What needs no compiler
.PHONY: style
style:
	@scripts/setup build lint
	cargo fmt --all --check
	cargo fmt --manifest-path fuzz/Cargo.toml --check
	scripts/imports
	scripts/deny
	shellcheck --external-sources --source-path=SCRIPTDIR .ci/run $$(grep -rlE '^#!.*(bash|sh)$$' scripts packaging contrib) packaging/openwrt/files/sidestep.init

.PHONY: clippy
clippy:
	@scripts/setup build
	cargo clippy --workspace --all-targets $(LOCKED) -- --deny warnings

.PHONY: lint-fuzz
lint-fuzz: ## clippy on the fuzz targets, which have dependencies of their own
	@scripts/setup build lint fuzz
	cargo clippy --manifest-path fuzz/Cargo.toml --target-dir $(TARGET) $(LOCKED) -- --deny warnings

# DENY=--always also where deny.checked says that it has passed
DENY ?=
.PHONY: deny
deny: ## licences, sources and advisories of dependencies, where these have changed
	scripts/deny $(DENY)

.PHONY: fuzz
fuzz: ## every fuzz target for SECONDS_EACH=60 seconds
	@scripts/setup build fuzz
	for target in $$(cargo fuzz list); do \
		cargo fuzz run --sanitizer none "$$target" -- -max_total_time=$(SECONDS_EACH); \
	done

# Builds only where nothing is built, so that `make build && sudo make install` needs no compiler for root.
$(INSTALLED):
	$(MAKE) build

# RELEASE=--twice builds in two folders and compares
RELEASE ?=
.PHONY: release
release: ## archives for x86_64 and aarch64, SBOM and checksums, target/release-VERSION (docs/releasing.md)
	@scripts/setup build static release
	scripts/release $(RELEASE)

.PHONY: install
install: $(INSTALLED) ## program, debug information, systemd unit, manual and completions under PREFIX=/usr/local
	install -D $(INSTALLED) $(DESTDIR)$(PREFIX)/bin/sidestep
	install -D -m 644 $(INSTALLED).debug $(DESTDIR)$(DEBUG)
	install -d $(DESTDIR)$(PREFIX)/lib/systemd/system
	for unit in $(UNITS); do \
		sed 's|/usr/local/bin|$(PREFIX)/bin|; s|/etc/|$(SYSCONFDIR)/|' "packaging/$$unit" \
			> "$(DESTDIR)$(PREFIX)/lib/systemd/system/$$unit"; \
	done
	for file in $(GENERATED); do \
		install -d "$(DESTDIR)$(PREFIX)/share/$$(dirname "$$file")"; \
	done
	$(RUN) $(INSTALLED) man > $(DESTDIR)$(PREFIX)/share/$(MANUAL)
	$(RUN) $(INSTALLED) completions bash > $(DESTDIR)$(PREFIX)/share/$(BASH_COMPLETION)
	$(RUN) $(INSTALLED) completions zsh > $(DESTDIR)$(PREFIX)/share/$(ZSH_COMPLETION)
	$(RUN) $(INSTALLED) completions fish > $(DESTDIR)$(PREFIX)/share/$(FISH_COMPLETION)
	@# Configurations hold private keys. Where there is one, no example is needed.
	install -d -m 0700 $(DESTDIR)$(SYSCONFDIR)/sidestep
	compgen -G '$(DESTDIR)$(SYSCONFDIR)/sidestep/*.toml' > /dev/null || \
		install -m 0600 examples/site-a.toml $(DESTDIR)$(SYSCONFDIR)/sidestep/$(EXAMPLE)
	@# The group that may look, and the folder for its sockets.
	install -D -m 644 packaging/sysusers.conf $(DESTDIR)$(PREFIX)/lib/sysusers.d/sidestep.conf
	install -D -m 644 packaging/tmpfiles.conf $(DESTDIR)$(PREFIX)/lib/tmpfiles.d/sidestep.conf
	install -D -m 644 packaging/sidestep.network $(DESTDIR)$(PREFIX)/lib/$(NETWORKD)
	[ -n "$(DESTDIR)" ] || [ ! -d /run/systemd/system ] || \
		{ systemd-sysusers sidestep.conf && systemd-tmpfiles --create sidestep.conf && systemctl daemon-reload; }

# Where gdb looks, with PREFIX=/usr
DEBUG           := $(PREFIX)/lib/debug$(PREFIX)/bin/sidestep.debug
UNITS           := $(notdir $(wildcard packaging/*.service packaging/*.timer))
EXAMPLE         := mt6d0.toml.example
NETWORKD        := systemd/network/10-sidestep.network
MANUAL          := man/man1/sidestep.1
BASH_COMPLETION := bash-completion/completions/sidestep
ZSH_COMPLETION  := zsh/site-functions/_sidestep
FISH_COMPLETION := fish/vendor_completions.d/sidestep.fish
GENERATED       := $(MANUAL) $(BASH_COMPLETION) $(ZSH_COMPLETION) $(FISH_COMPLETION)

.PHONY: uninstall
uninstall: ## removes what install put there; configurations stay
	rm -f $(DESTDIR)$(PREFIX)/bin/sidestep $(DESTDIR)$(DEBUG) \
		$(addprefix $(DESTDIR)$(PREFIX)/lib/systemd/system/,$(UNITS)) \
		$(addprefix $(DESTDIR)$(PREFIX)/share/,$(GENERATED)) \
		$(addprefix $(DESTDIR)$(PREFIX)/lib/,sysusers.d/sidestep.conf tmpfiles.d/sidestep.conf $(NETWORKD)) \
		$(DESTDIR)$(SYSCONFDIR)/sidestep/$(EXAMPLE)
