"""What commands, statements and paths do that deserves a second look, as expressions.

A `(?i)` stands at the beginning of an expression or nowhere. `console/views/proposals/risk-table.js` has the
same: `python -m tools.make_risk_table` writes it.
"""

from __future__ import annotations

from typing import Final

# Programs by name, what their arguments look like (with a blank on both sides), and what that does.
COMMANDS: Final[tuple[tuple[str, str, str], ...]] = (
    (r"rm|unlink|srm|rimraf|trash", r"", "deletes files"),
    (r"remove-item|ri|del|erase|rd|rmdir", r"(?i) (/[sq]|-r\w*|-fo\w*) ", "deletes files"),
    (r"find|fd|fdfind", r" -delete ", "deletes what it finds"),
    (r"rsync", r" --(delete\S*|remove-source-files) ", "deletes files"),
    (r"mv", r" /dev/null ", "throws files away"),
    (r"sudo|doas|su|pkexec|runas|gsudo", r"", "runs as another user"),
    (
        (
            r"shred|wipe|mkfs(\.\w+)?|mke2fs|wipefs|fdisk|sfdisk|sgdisk|parted|blkdiscard|mkswap|badblocks"
            r"|cryptsetup"
        ),
        r"",
        "overwrites disks or files",
    ),
    (r"dd", r" of=", "overwrites disks or files"),
    (r"truncate", r" (-s|--size)", "empties or cuts files"),
    (
        r"diskutil|format-volume|clear-disk|format",
        r" (erase\S*|zerodisk|partitiondisk|-\w+|[a-z]:) ",
        "erases disks",
    ),
    (
        r"chmod",
        r" (0?[0-7]?[0-7][0-7][2367]|0?[2467][0-7]{3}|[ugo]*[ao][ugo]*[+=]\w*w\w*|\+w|[ugoa]*\+\w*s\w*) ",
        "lets everybody write, or run it as another",
    ),
    (r"chown|chgrp|takeown|icacls", r" (-\w*R\w*|--recursive|/r|/grant) ", "changes owners of many files"),
    (
        r"git",
        (
            r" push .*(--force|-f |--mirror|--delete|-d | \+| :\S)| reset .*--hard| clean .*-\w*f| (checkout"
            r"|restore) (-- )?\.| checkout -f | branch .*-D | stash (drop|clear)| reflog expire"
            r"| remote set-url | filter-(branch|repo)| update-ref -d | gc .*--prune=now| tag -d "
            r"| worktree remove .*-f"
        ),
        "discards commits or files",
    ),
    (
        r"git",
        r"(?i) config .*(core\.(hookspath|sshcommand|fsmonitor|pager|editor)|alias\.\S+ !|credential\.)",
        "changes which programs git starts",
    ),
    (r"curl|wget|http|https|xh", r" (-X ?|--request[ =]|)DELETE ", "deletes something at an address"),
    (r"curl", r" (-d|--data\S*|-F|--form)[ =]?\S*@| (-T|--upload-file)[ =]?\S", "sends files to an address"),
    (r"wget", r" --(post|body)-file", "sends files to an address"),
    (r"scp|sftp|rsync|rclone", r" [\w.-]+(@[\w.-]+)?:\S* $", "copies files to another machine"),
    (
        r"nc|ncat|netcat|socat",
        r" (-\w*[elc]\w*|\S*(exec|system|listen):\S*|--exec|--listen) ",
        "opens a shell or a port",
    ),
    (r"ssh", r" -\w*[RLDw] ", "opens a tunnel"),
    (r"ssh-copy-id", r"", "lets somebody sign in"),
    (r"ngrok|cloudflared|localtunnel|lt", r" (http|tcp|tunnel|--port) ", "opens a tunnel"),
    (
        r"kubectl|oc|k",
        r" (delete|drain|replace .*--force|scale .*--replicas[= ]0|rollout undo|patch|exec) ",
        "removes or changes infrastructure",
    ),
    (
        r"terraform|tofu|terragrunt|pulumi|cdk",
        r" (destroy|apply|up|taint|state rm|import) ",
        "removes or changes infrastructure",
    ),
    (r"helm", r" (uninstall|delete|rollback|upgrade) ", "removes or changes infrastructure"),
    (
        r"docker|podman|nerdctl|docker-compose",
        r" (rm|rmi|kill|prune|push|down .*-v|down .*--volumes|volume rm|network rm|swarm leave) ",
        "removes or publishes containers",
    ),
    (
        r"docker|podman|nerdctl",
        r" (--privileged|--pid[= ]host|--cap-add[= ]\S+|(-v|--volume)[= ]?/:\S+|\S*docker\.sock\S*) ",
        "gives a container the machine",
    ),
    (
        (
            r"aws|gcloud|az|gsutil|doctl|heroku|flyctl|fly|eksctl|vercel|netlify|firebase|supabase|wrangler"
            r"|gh|glab|ibmcloud"
        ),
        (
            r" (rb|rm|del|delete\S*|remove\S*|terminate\S*|destroy|purge\S*|deregister\S*|pg:reset|db reset"
            r"|apps:destroy|put-bucket-\S+|put-object-acl|create-access-key|attach-\S+-policy|detach-\S+"
            r"|schedule-key-deletion|stop-logging|sync .*--delete|add-iam-policy-binding|secret set"
            r"|repo archive|-X DELETE|--method DELETE|--acl public-\S+) "
        ),
        "removes or opens up what runs elsewhere",
    ),
    (r"gh", r" auth token ", "prints a secret"),
    (r"gh|glab", r" (pr merge|mr merge|release create|workflow run) ", "publishes something"),
    (
        r"vercel|netlify|firebase|fly|flyctl|serverless|sls|gcloud|wrangler|cap|eb",
        r" (deploy|--prod|publish) ",
        "publishes something",
    ),
    (r"python[\d.]*", r" -m (http\.server|SimpleHTTPServer|smtpd|pty) ", "opens a shell or a port"),
    (r"tar|unzip|bsdtar|cpio", r" (-C|--directory|-d)[ =]?/ ", "writes into the system"),
    (r"chattr|setfacl|setcap|setfattr", r" \S", "changes how files are protected"),
    (r"ip|ifconfig|route|nmcli|networksetup", r" (down|del|delete|flush|off|add) ", "changes the network"),
    (
        (
            r"nmap|masscan|hydra|sqlmap|john|hashcat|msfconsole|msfvenom|nikto|tcpdump|ettercap|arpspoof"
            r"|mimikatz|responder|xmrig|minerd"
        ),
        r"",
        "is a tool for attacks",
    ),
    (
        r"systemctl|service|launchctl|sc|sc\.exe|rc-service",
        r" (stop|disable|mask|unload|bootout|remove|delete) ",
        "stops services",
    ),
    (
        r"systemctl|launchctl|update-rc\.d|schtasks",
        r" (enable|load|bootstrap|defaults|/create) ",
        "changes what starts by itself",
    ),
    (r"crontab", r" (-r|-e|-|[^-\s]\S*) ", "changes what starts by itself"),
    (r"at|batch", r" (now|-f|\d|noon|midnight|teatime)", "starts something later"),
    (r"shutdown|reboot|halt|poweroff|stop-computer|restart-computer", r"", "stops the machine"),
    (r"init|telinit", r" [06] ", "stops the machine"),
    (r"killall|pkill|taskkill|stop-process|xkill", r"", "ends processes"),
    (r"kill", r" (-9|-KILL|-SIGKILL|-s (9|KILL)|-1|-- -1) ", "ends processes"),
    (
        r"iptables|ip6tables|nft|ufw|firewall-cmd|netsh|pfctl",
        r" (-F|--flush|-X|-P|-D|-A|-I|disable|reset|delete|allow|flush|off|-d|--add-\S+|--remove-\S+) ",
        "changes the firewall",
    ),
    (r"setenforce", r" (0|permissive) ", "turns protection off"),
    (r"auditctl|aa-disable|aa-teardown|set-mppreference|spctl|csrutil", r"", "turns protection off"),
    (r"sysctl", r" (-w|\S+=\S+) ", "changes the system"),
    (
        r"modprobe|insmod|rmmod|kexec|mount|umount|swapoff|chroot|bcdedit|vssadmin|wbadmin|cipher",
        r" \S",
        "changes the system",
    ),
    (r"reg|regedit", r" (add|delete|import|/s) ", "changes the system"),
    (
        (
            r"useradd|adduser|usermod|userdel|deluser|groupadd|groupmod|groupdel|gpasswd|passwd|chpasswd"
            r"|visudo|chsh|net"
        ),
        r"",
        "changes accounts",
    ),
    (r"history", r" -(c|w|d) ", "hides what was done"),
    (r"unset", r" HIST\w+ ", "hides what was done"),
    (r"journalctl", r" --(vacuum|rotate)\S*", "hides what was done"),
    (
        r"npm|pnpm|yarn|cargo|poetry|uv|gem|twine|flit|hatch|pod|mvn|dotnet",
        r" (publish|unpublish|deprecate|upload|yank|push|deploy|owner|token|dist-tag) ",
        "publishes something",
    ),
    (
        r"pip3?|pipx|npm|pnpm|yarn|uv|gem|go",
        (
            r" (i|install|add|get|tool install) .*((git\+|https?:|ssh:|file:)\S+|--(extra-)?index-url"
            r"|--registry|--trusted-host)"
        ),
        "installs from an address",
    ),
    (r"npm|pip3?|yarn|pnpm", r" config set ", "installs from an address"),
    (r"pip3?|pipx", r" uninstall ", "removes software"),
    (
        r"apt|apt-get|aptitude|yum|dnf|pacman|zypper|apk|snap|brew|dpkg|rpm|flatpak|choco|winget|port",
        r" (remove|purge|autoremove|erase|uninstall|del|-R\w*|-r|-P|-e|--purge|--erase|--remove) ",
        "removes software",
    ),
    (r"redis-cli", r"(?i) (flushall|flushdb|shutdown|config set|debug) ?", "empties or stops a database"),
    (r"dropdb|dropuser|pg_resetwal", r" \S", "empties or drops a database"),
    (r"mysqladmin|mongorestore|pg_restore", r" (drop|--drop|--clean|-c) ", "empties or drops a database"),
    (
        r"mongo|mongosh",
        r"(?i)(dropdatabase|\.drop\(|deletemany|remove\(\s*\{\s*\})",
        "empties or drops a database",
    ),
    (
        r"python[\d.]*|perl|ruby|node|deno|bun|php|lua|osascript|powershell|pwsh",
        (
            r" (-|-\w*[cer]\w*|eval|--eval|-command|-enc\w*) .*(os\.system|subprocess|popen|shutil|rmtree"
            r"|os\.(remove|unlink|rmdir|exec)|unlink|rm_rf|socket|child_process|rmsync|rmdirsync|fs\.rm"
            r"|exec\(|eval\(|system\(|`|b64decode|base64|__import__|pty\.spawn|rm -|remove-item"
            r"|downloadstring|invoke-|iex|do shell script|file_put_contents|-enc)"
        ),
        "runs code that deletes, connects or starts programs",
    ),
    (r"powershell|pwsh", r"(?i) -(enc\w*|ec|e) ", "runs code that cannot be read here"),
    (r"iex|invoke-expression|set-executionpolicy", r"", "runs text as a program"),
    (r"eval|source|\.", r"[$`]|<\(", "runs text as a program"),
    (r"certutil|bitsadmin|mshta|regsvr32|rundll32|wmic", r" \S", "starts what it downloads"),
    (r"gpg2?", r" --(delete-\S+|export-secret\S*)", "deletes or hands out keys"),
    (r"openssl", r" enc .*-(pass|k|kfile) ?", "encrypts files"),
    (
        (
            r"alembic|flask|prisma|rails|rake|artisan|manage\.py|knex|sequelize|sequelize-cli|flyway"
            r"|liquibase|dbmate"
        ),
        (
            r" (downgrade|migrate reset|db:(drop|reset|rollback\S*)|migrate:(fresh|reset|rollback)|flush"
            r"|reset_db|clean|drop|dropall|undo|undo:all) "
        ),
        "empties or drops a database",
    ),
    (
        r"security|secret-tool|pass|op|vault|keyring",
        r" (find-\S+-password|lookup|show|read|get|kv get|delete|dump-keychain) ",
        "hands out secrets",
    ),
)
# Programs that are given statements.
DATABASE_CLIENTS: Final = (
    r"(?i)[ /](psql|mysql|mariadb|sqlite3|sqlcmd|duckdb|clickhouse-client|bq|snowsql|cockroach"
    r"|sqlplus)(\.exe)?$"
)
# Where one command feeds another, or a text is no simple command.
WHOLE: Final[tuple[tuple[str, str], ...]] = (
    (
        (
            r"\b(curl|wget|fetch|base64|xxd|openssl|gunzip|zcat|iwr|irm|invoke-webrequest"
            r"|invoke-restmethod)\b[^\n]{0,400}\|\s{0,9}(sudo\s{1,9})?(\S{0,60}/)?((ba|z|da|k|fi)?sh"
            r"|python[\d.]{0,5}|perl|ruby|node|php|iex)\b"
        ),
        "runs what it downloads or decodes",
    ),
    (
        (
            r"\b((ba|z|da|k)?sh|source|eval|python[\d.]{0,5})\b[^\n|]{0,60}[<$]\(\s{0,9}(curl|wget|base64"
            r"|echo)\b"
        ),
        "runs what it downloads or decodes",
    ),
    (r"(^|[\s;&|])\.?\s{0,3}<\(\s{0,9}(curl|wget)\b", "runs what it downloads or decodes"),
    (
        (
            r"\b(curl|wget)\b[^\n]{0,400}(;|&&|\n)[^\n]{0,200}(\bchmod \S{0,9}x|(^|[\s;&|])(ba|z"
            r"|da)?sh [^-\s]|(^|[\s;&|])\./)"
        ),
        "runs what it downloads or decodes",
    ),
    (r"/dev/(tcp|udp)/", "opens a connection"),
    (
        r"(^|[\s;&|])[\w:]{1,20}\s{0,3}\(\)\s{0,3}\{[^}\n]{0,80}\|[^}\n]{0,80}&",
        "starts itself again and again",
    ),
    (r"\|\s{0,9}(\S{0,60}/)?(nc|ncat|netcat|socat|mail|mailx|sendmail|ssh)\s", "sends what it read away"),
    (
        (
            r"\b(LD_PRELOAD|LD_LIBRARY_PATH|DYLD_INSERT_LIBRARIES|BASH_ENV|PROMPT_COMMAND|PYTHONSTARTUP"
            r"|GIT_SSH_COMMAND|NODE_OPTIONS|HISTFILE)="
        ),
        "changes what programs load or record",
    ),
)
# Paths by what they are: secrets,
SECRET_PATHS: Final = (
    r"(?i)(^|[\\/])(\.env(\.[\w-]+)?|\.ssh|\.aws|\.gnupg|\.netrc|\.npmrc|\.pypirc|\.kube|\.docker"
    r"|\.azure|\.git-credentials|\.pgpass|\.my\.cnf|\.vault-token|\.htpasswd|id_(rsa|dsa|ecdsa"
    r"|ed25519)|authorized_keys|shadow|gshadow|credentials(\.json|\.csv|\.ini)?|secrets?\.(ya?ml|json"
    r"|toml|env|ini)|service[_-]account[\w-]*\.json|kubeconfig|wallet\.dat|login data|logins\.json"
    r"|key4\.db|\.(bash|zsh|psql|mysql|python)_history|[\w.-]+\.(pem|key|p12|pfx|kdbx|jks"
    r"|keystore))($|[\\/])|\.config/(gcloud|gh|op)(/|$)|^/proc/[\w*]+/(environ|mem)$"
    r"|/secrets/kubernetes\.io/|^/run/secrets(/|$)"
)
# the system's own files,
SYSTEM_PATHS: Final = (
    r"(?i)^(/private)?/etc/(passwd|group|shadow|sudoers|crontab|cron\.|cron|anacrontab|ssh|pam\."
    r"|ld\.so\.|hosts$|profile|environment|rc\.local|init\.d|systemd|fstab|security|krb5|ssl/private"
    r"|resolv\.conf|selinux|default/grub)|^/var/spool/(cron|at)|^/boot(/|$)|^/dev/(sd|nvme|hd|vd|xvd"
    r"|disk|mmcblk|mem|kmem|port)|^/proc/(sysrq-trigger|sys/)|^/sys/|docker\.sock$|^[a-z]:\\windows"
    r"\\|\\system32\\|^/(usr/)?(s?bin|lib|lib64)/|^/usr/local/s?bin/|^/library/launch"
)
# and what programs read by themselves and act by.
SELF_STARTING_PATHS: Final = (
    r"(?i)(^|[\\/])(\.git[\\/](hooks[\\/]|config$)|\.husky[\\/]|\.github[\\/]workflows[\\/]"
    r"|\.gitlab-ci\.ya?ml$|\.circleci[\\/]|jenkinsfile$|\.(bashrc|bash_profile|bash_login|bash_logout"
    r"|zshrc|zprofile|zshenv|profile|gitconfig|pre-commit-config\.yaml|envrc|vimrc|inputrc)$"
    r"|\.config[\\/](autostart|systemd|fish)[\\/]|launch(agents|daemons)[\\/]"
    r"|start menu[\\/]programs[\\/]startup|\.vscode[\\/](tasks|settings)\.json$|\.claude[\\/]"
    r"|\.cursor[\\/]|\.mcp\.json$|conftest\.py$|sitecustomize\.py$|\S+\.pth$)"
)
# How a statement begins,
SQL_START: Final = (
    r"(?i)^[\s(]*(with|select|insert|update|delete|drop|truncate|alter|create|grant|revoke|merge|copy"
    r"|exec|execute|call|attach|pragma|replace|load|shutdown|kill|set|begin|start|vacuum|reindex|use"
    r"|rename|explain|do|flush|purge|reset|import)\b"
)
# and what it does; it is in lower case, with single blanks, without comments and texts.
STATEMENTS: Final[tuple[tuple[str, str], ...]] = (
    (r"^(drop|truncate|purge)\b", "drops or empties something"),
    (
        (
            r"^alter\b.*\bdrop\b|^alter (user|role|login|system|database)\b|^rename table\b"
            r"|^create or replace (function|procedure|trigger)\b|^create trigger\b"
        ),
        "changes what is stored, or who may",
    ),
    (
        r"^(grant|revoke)\b|^create (user|role|login)\b|^set (password|role|session authorization)\b",
        "changes what is stored, or who may",
    ),
    (
        (
            r"\binto (out|dump)file\b|\bload_file ?\(|\bxp_cmdshell\b|\bcopy\b.*\b(program|to|from) "
            r"|\bpg_(read|ls)\w*_?file|\blo_export\b|\bload data\b|\battach\b|\bload_extension\b"
            r"|\bsp_oacreate\b|\butl_(http|file)\b"
        ),
        "reads or writes files, or starts programs",
    ),
    (
        (
            r"^(shutdown|kill|flush|reset)\b|^pragma (writable_schema|journal_mode|foreign_keys|secure_delete"
            r"|trusted_schema) ?=|^set (global|foreign_key_checks|sql_safe_updates)\b|\bpg_(terminate"
            r"|cancel)_backend\b"
        ),
        "changes how the database works",
    ),
    (r"\bpg_sleep ?\(|\bbenchmark ?\(|\bwaitfor delay\b", "waits, as attacks do"),
    (
        (
            r"\binformation_schema\.\w+.*\bunion\b|\bunion\b.*\b(password|passwd|secret|token"
            r"|information_schema|sqlite_master|pg_shadow|mysql\.user)\b|\bfrom (mysql\.user|pg_shadow"
            r"|pg_authid|sys\.sql_logins)\b"
        ),
        "reads accounts or secrets",
    ),
)
