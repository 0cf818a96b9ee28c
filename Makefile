# Two commands matter: `make demo` runs the main job, `make test` passes the tests. Each does all of its own set-up.
SHELL := /bin/bash
CARGO ?= cargo
# Dependencies are reused between clones when the build goes to a shared place; override as you like.
export CARGO_TARGET_DIR ?= $(CURDIR)/target
# Named in the reports of `belfry bench`.
export BELFRY_COMMIT := $(shell git describe --always --dirty --abbrev=12 2>/dev/null)

.PHONY: demo test build deb image package-test lint bench docs pictures dashboard dashboard-test kill-test stress-test race-test race-faults wire-test fuzz fuzz-corpus api-judges setup setup-packaging setup-servers

## demo: a million notifications and real webhooks through a kill -9, counted by the provider
demo: setup
	scripts/demo.sh

## test: everything that must hold; starts PostgreSQL, RabbitMQ, NATS, mail and HTTP/2 servers on private ports
test: setup setup-servers
	scripts/check-disk.sh
	$(CARGO) build --workspace --all-targets --locked
	nice -n 19 scripts/build-aside.sh & aside=$$!; trap "kill $$aside 2>/dev/null" EXIT; $(CARGO_TARGET_DIR)/debug/xtask test && wait $$aside
	scripts/fuzz.sh
	scripts/api-judges.sh
	scripts/api-clients.sh
	scripts/dashboard-test.sh
	scripts/package-test.sh

## build: the released binary, target/release/belfry
build: setup
	$(CARGO) build --release --locked -p belfry

## deb: a Debian package of a reproducible build, target/package/belfry_VERSION-1_ARCH.deb, with its bill of materials; 7 to 12 minutes
deb: setup setup-packaging
	scripts/build-release.sh $(CARGO_TARGET_DIR)/package
	scripts/package-deb.sh $(CARGO_TARGET_DIR)/package/belfry $(CARGO_TARGET_DIR)/package

## image: the package as a container image for `docker load`, target/package/belfry_VERSION-1_ARCH.image.tar; needs no Docker
image: deb
	scripts/package-image.sh $$(ls -t $(CARGO_TARGET_DIR)/package/belfry_*.deb | head -1) $(CARGO_TARGET_DIR)/package

## package-test: both of a development build, twice, installed and run, as in make test
package-test: setup setup-packaging
	$(CARGO) build --locked -p belfry -p xtask
	scripts/package-test.sh

## lint: formatting, clippy with the workspace's law, and the project's own rules
lint: setup
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	$(CARGO) clippy -p net --features fuzzing --locked -- -D warnings
	$(CARGO) fmt --manifest-path crates/net/fuzz/Cargo.toml --check
	$(CARGO) test -q --locked -p xtask
	@if command -v cargo-deny >/dev/null; then $(CARGO) deny check bans licenses sources && \
	$(CARGO) deny --manifest-path crates/net/fuzz/Cargo.toml check bans licenses sources; \
	else echo "cargo-deny is not installed: 'cargo install --locked cargo-deny' to check licences and bans"; fi

## bench: every row of `belfry bench` beside what was published, in under 15 minutes; ROW=fanout for one, SIZE= for its full size
bench: setup setup-servers build
	$(CARGO_TARGET_DIR)/release/belfry bench $(or $(ROW),all) $(if $(filter undefined,$(origin SIZE)),--short,$(SIZE))

## kill-test: 50 seeded rounds of kill -9 at random moments (make test runs a few)
kill-test: setup
	scripts/kill-test.sh

## stress-test: everything that must hold, ten times, beside two busy loops (2 h on two cores)
stress-test: setup setup-servers
	scripts/stress-test.sh

## race-test: 100,000 seeded interleavings of several processes on PostgreSQL (make test plays 2,000)
race-test: setup setup-servers
	BELFRY_RACE_SCHEDULES=100000 $(CARGO) test --release --locked -p store --lib races -- --nocapture

## race-faults: plants known faults one at a time, and expects the interleavings to find each
race-faults: setup setup-servers
	scripts/race-faults.sh

## wire-test: 200,000 seeded scripts of an HTTP/2 server that does whatever it may, and mutations of its bytes (make test: 2,000, 5,000); 2,000 over TLS (200)
wire-test: setup
	BELFRY_WIRE_SCRIPTS=200000 $(CARGO) test --release --locked -p net --lib hostile

## fuzz: a minute of coverage-guided fuzzing of the HTTP/2 client's reader and HPACK, as in make test; SECONDS=3600 for an hour
fuzz: setup
	scripts/fuzz.sh $(SECONDS)

## fuzz-corpus: makes the fuzzer's corpus anew, with what it has found since
fuzz-corpus: setup
	scripts/fuzz.sh --corpus

## api-judges: Spectral, schemathesis, promtool and generated clients on the API, its description and the metrics, as in make test; EXAMPLES=200 for more of each operation
api-judges: setup setup-servers
	$(CARGO) build --locked -p belfry
	scripts/api-judges.sh $(EXAMPLES)
	scripts/api-clients.sh

## dashboard: the files of the dashboard from their sources; needs Node.js and npm
dashboard:
	cd dashboard && npm ci --ignore-scripts --no-audit --no-fund --silent && npm run --silent check && npm run --silent build

## dashboard-test: the dashboard in a browser, as in make test
dashboard-test: setup setup-servers
	$(CARGO) build --locked -p belfry -p testbed
	scripts/dashboard-test.sh

## pictures: those of the docs, from a run of the dashboard's tests and one of the demo
pictures: dashboard-test build
	cp $(addprefix $(CARGO_TARGET_DIR)/dashboard/,overview.png overview-dark.png notification.png) docs/pictures/
	node dashboard/test/demo.mjs docs/pictures scripts/demo.sh

## docs: the generated pages
docs: setup
	$(CARGO) run -q --locked -p xtask -- docs
	$(CARGO) run -q --locked --release -p flow --example limits >docs/reference/limits.md

setup:
	@scripts/setup.sh

setup-packaging:
	@scripts/setup-servers.sh --packaging

setup-servers:
	@scripts/setup-servers.sh
	@scripts/fetch-kafka.sh
	@scripts/fetch-aws-servers.sh
