"""Words that the kinds of values know: programs, names of arguments, and what no slot admits in a name."""

# ruff: noqa: SIM905  (lists of words read better as text)

from __future__ import annotations

import re
from typing import Final

# Where one of these stands, people decide, unless they approved it as it is. Nobody can know from ten names
# of files that `credentials` is not wanted, or from ten branches that `main` is different. To ask costs one
# decision. The list is no protection by itself: it only makes slots smaller.
SECRET: Final = frozenset(
    """
    secret secrets password passwords passwd passphrase pwd credential credentials cred creds token tokens
    apikey apikeys key keys keystore private privkey pem shadow sudoers rsa dsa ecdsa ed25519 ssh gpg pgp
    htpasswd netrc npmrc kubeconfig vault wallet mnemonic dotenv cookies jwt ssn payroll salary salaries
    confidential restricted classified
    """.split()
)
# In texts that people read: what is told behind one of these is not for everybody.
TOLD: Final = SECRET | frozenset("passcode pin tan otp cvv cvc iban swift sortcode".split())
GUARDED: Final = SECRET | frozenset(
    """
    prod production live main master trunk release root admin administrator superuser sudo system kernel boot
    env pass seed session cookie
    force delete deleted remove drop destroy purge wipe erase truncate shutdown reboot format kill uninstall
    reset rollback revoke disable publish deploy
    all everyone everybody here channel any star null
    eval exec sh bash zsh cmd powershell evil malware exploit payload backdoor
    """.split()
)

_CHANGING_PAGES: Final = frozenset(
    """
    admin root delete destroy purge wipe logout signout unsubscribe shutdown reboot prod production publish
    deploy revoke uninstall
    """.split()
)

_DOCUMENT: Final = re.compile(r"\.(?:html?|md|rst|adoc|txt|pdf)$", re.ASCII)

# Shell: their arguments are programs or commands, or what they do depends on every word.
RUNNERS: Final = frozenset(
    """
    bash sh zsh dash ksh fish python python2 python3 node deno bun ruby perl php lua awk gawk mawk sed
    eval exec source . xargs sudo doas su env nohup time timeout nice ionice stdbuf watch ssh scp rsync
    find parallel npx uvx pipx bunx tclsh osascript powershell pwsh cmd psql mysql sqlite3 mongo mongosh
    redis-cli expect script screen tmux at batch crontab systemd-run chroot unshare nsenter setsid strace
    gdb jshell groovy ansible make cmake vim vi emacs ed less more man tar zip curl wget nc ncat socat
    telnet ftp sftp dd mount chmod chown chgrp rm shred kill pkill killall reboot shutdown mkfs fdisk
    iptables busybox command builtin trap alias export set unset declare local read type hash enable
    complete bind shopt ulimit umask exit return
    """.split()
)
RUNNING_SUBCOMMANDS: Final = frozenset(
    tuple(pair.split())
    for pair in """docker exec,docker run,docker compose,podman exec,podman run,kubectl exec,kubectl run,
    kubectl debug,npm exec,yarn dlx,pnpm dlx,uv run,poetry run,git bisect,git config,git filter-branch,
    cargo run,go run,go generate,git submodule,npm init,pip download""".split(",")
)
# Programs without subcommands: their first argument is an argument.
WITHOUT_SUBCOMMANDS: Final = frozenset(
    """
    cat ls head tail grep egrep fgrep rg ag wc cd pwd mkdir touch diff cmp stat file which tree du df
    echo printf sort uniq cut basename dirname realpath readlink md5sum sha256sum nl od xxd strings jq yq
    pytest ruff black mypy flake8 eslint prettier tsc cp mv ln test dig host nslookup ping
    """.split()
)
# Programs with subcommands of subcommands.
WITH_NESTED_SUBCOMMANDS: Final = frozenset(
    """
    kubectl gh glab aws gcloud az docker podman npm yarn pnpm helm terraform systemctl heroku fly vercel
    supabase ip nmcli poetry uv cargo conda brew apt apt-get dnf yum pip pip3
    """.split()
)
NESTED_GIT: Final = frozenset("stash remote worktree submodule config bisect notes".split())
# Program, subcommand and option whose value is a message.
MESSAGE_OPTIONS: Final = frozenset(
    tuple(line.split())
    for line in """git commit -m,git commit --message,git commit -am,git tag -m,git stash -m,gh pr --title,
    gh pr --body,gh issue --title,gh issue --body,gh pr -t,gh pr -b""".split(",")
)

# Subcommands whose arguments are what is run, fetched, changed or lost: these are listed, never open.
CHANGING: Final = frozenset(
    """
    install add i get download pull push run exec start stop restart apply create delete remove rm rmi
    uninstall upgrade update publish deploy scale rollout patch replace set edit destroy import login
    attach kill clone fetch merge rebase reset revert clean restore rebuild up down init
    enable disable mask load build
    """.split()
)

# Names of arguments.
SHELL_NAMES: Final = frozenset("command cmd commands commandline shell bash".split())
# Only as the whole name: `run_id` is no command.
WHOLE_SHELL_NAMES: Final = frozenset("sh script exec run terminal cli argv".split())
SHELL_TOOLS: Final = frozenset("bash shell terminal command cmd".split())
SQL_NAMES: Final = frozenset("sql query statement q".split())
CODE_NAMES: Final = frozenset(
    "code source program expression expr snippet python javascript js eval lambda template".split()
)
PATH_NAMES: Final = frozenset(
    "path paths file filename filepath folder directory dir destination src dest dst target uri".split()
)
TEXT_NAMES: Final = frozenset(
    """
    text message msg body memo note notes comment comments description title subject summary reason
    caption reply content contents answer details
    """.split()
)
# What somebody looks for.
SEARCH_NAMES: Final = frozenset("query q search keyword keywords term terms question topic prompt".split())
# What holds the fields of a request.
BODY_NAMES: Final = frozenset("body data payload json fields properties attributes params".split())
# What is called by an id.
ID_NAMES: Final = frozenset(
    """
    id ids number no nr ref reference invoice order ticket issue case booking reservation sku item product
    user customer run job build task
    """.split()
)
# Whom it is for: such ids and names are approved as they were.
PAYEE_NAMES: Final = frozenset(
    """
    to recipient recipients payee beneficiary account iban card payment wallet address bcc cc owner user
    assignee member role permission channel host domain
    """.split()
)
# Tools that store what they are given as `content`, and those that edit files, with what they call a text.
STORING_TOOLS: Final = frozenset("write save create edit update append put store".split())
EDITING_TOOLS: Final = frozenset("write edit editor replace patch insert notebook".split())
EDITED_NAMES: Final = frozenset("text string str source code".split())
# Tools that read, by the first words of their names.
READING_TOOLS: Final = frozenset(
    "get fetch read list find search show view open browse lookup request http crawl scrape load web".split()
)
# A request with one of these changes something.
CHANGING_METHODS: Final = frozenset("POST PUT PATCH DELETE".split())
# Tools that run what they are given.
RUNNING_TOOLS: Final = frozenset(
    "run exec execute eval shell bash terminal command python node code sql query script spawn".split()
)
# Tools that take something away, whatever else their names say: `delete_node` runs no program.
REMOVING_TOOLS: Final = frozenset(
    """
    delete remove drop destroy purge wipe erase truncate clear reset rm unlink uninstall kill cancel terminate
    drain evict prune revoke revert rollback
    """.split()
)

# Shell: tree-sitter's names for what is read.
SHELL_NODES: Final = frozenset(
    """
    program list pipeline command command_name word number raw_string string string_content concatenation
    redirected_statement file_redirect file_descriptor variable_assignment variable_name
    """.split()
)


# Files that say what runs, is built, installed or checked; hidden ones, hooks and locks.
_RUNNING_FILES: Final = re.compile(
    r"(?:.*/)?(?:\.[^/]+|hooks|git-hooks|ci|bin|sbin|cron[^/]*|systemd)/.*|(?:.*/)?(?:"
    r"\.[^/]*|setup\.(?:py|cfg)|pyproject\.toml|package\.json|composer\.json|cargo\.toml|go\.(?:mod|sum)|pom\.xml|"
    r"gemfile|rakefile|makefile|[^/]*\.mk|dockerfile|containerfile|docker-compose[^/]*|compose\.ya?ml|jenkinsfile|"
    r"procfile|vagrantfile|cmakelists\.txt|[^/]*requirements[^/]*\.txt|conftest\.py|noxfile\.py|tox\.ini|"
    r"manage\.py|sitecustomize\.py|[^/]*[-.]lock[^/]*|[^/]*\.(?:sh|bash|zsh|fish|ps1|bat|cmd|exe|dll|so|service|timer|"
    r"gradle|lock|pth|desktop|plist|reg|tf)|[^/]*\.config\.[cm]?[jt]s|(?:gulp|grunt)file\.js|crontab|authorized_keys|"
    r"known_hosts|sudoers|hosts|passwd)",
    re.IGNORECASE,
)


def says_what_runs(path: str) -> bool:
    """Whether a file is one that people should look at: CI, packaging, hooks, locks, scripts, hidden ones."""
    return _RUNNING_FILES.fullmatch(path) is not None


_RUNS: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|[0-9]+", re.ASCII)


def is_guarded(text: str) -> bool:
    """Whether a word that people should look at is in a name, between `-`, `_`, digits or changes of case."""
    return _has_word(text, GUARDED)


def is_secret(text: str) -> bool:
    """The same for what files and columns should not be called: `main.py` is fine, `keys.py` is not."""
    return _has_word(text, SECRET)


def is_guarded_page(name: str) -> bool:
    """The same for a part of an address that is read: a manual has pages about `kill` and `reset`.

    A document (`git-delete.md`) may be about what a page without an ending may do.
    """
    return _has_word(name, SECRET if _DOCUMENT.search(name) else SECRET | _CHANGING_PAGES)


def is_told_secret(word: str) -> bool:
    """The same for a word of a text."""
    return _has_word(word, TOLD)


# These are found within a longer word, too: `mysecrets`, `dbpassword`.
_WITHIN: Final = re.compile(r"secret(?!ar)|passw(?:or)?d|credential|private_?key|api_?key", re.IGNORECASE)


def _has_word(text: str, words: frozenset[str]) -> bool:
    """`words` are at least those of secrets."""
    return (
        text.lower() in words
        or _WITHIN.search(text) is not None
        or any(run.lower() in words for run in _RUNS.findall(text))
    )
