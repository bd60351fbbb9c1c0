// Written by `python -m tools.make_risk_table` from moot/protocol/risk_table.py: change it there.
/** @type {string[][]} */
export const COMMANDS = [
  ["rm|unlink|srm|rimraf|trash", "", "deletes files"],
  ["remove-item|ri|del|erase|rd|rmdir", "(?i) (/[sq]|-r\\w*|-fo\\w*) ", "deletes files"],
  ["find|fd|fdfind", " -delete ", "deletes what it finds"],
  ["rsync", " --(delete\\S*|remove-source-files) ", "deletes files"],
  ["mv", " /dev/null ", "throws files away"],
  ["sudo|doas|su|pkexec|runas|gsudo", "", "runs as another user"],
  [
    "shred|wipe|mkfs(\\.\\w+)?|mke2fs|wipefs|fdisk|sfdisk|sgdisk|parted|blkdiscard|mkswap|badblocks|cryptsetup",
    "",
    "overwrites disks or files",
  ],
  ["dd", " of=", "overwrites disks or files"],
  ["truncate", " (-s|--size)", "empties or cuts files"],
  ["diskutil|format-volume|clear-disk|format", " (erase\\S*|zerodisk|partitiondisk|-\\w+|[a-z]:) ", "erases disks"],
  [
    "chmod",
    " (0?[0-7]?[0-7][0-7][2367]|0?[2467][0-7]{3}|[ugo]*[ao][ugo]*[+=]\\w*w\\w*|\\+w|[ugoa]*\\+\\w*s\\w*) ",
    "lets everybody write, or run it as another",
  ],
  ["chown|chgrp|takeown|icacls", " (-\\w*R\\w*|--recursive|/r|/grant) ", "changes owners of many files"],
  [
    "git",
    " push .*(--force|-f |--mirror|--delete|-d | \\+| :\\S)| reset .*--hard| clean .*-\\w*f| (checkout|restore) (-- )?\\.| checkout -f | branch .*-D | stash (drop|clear)| reflog expire| remote set-url | filter-(branch|repo)| update-ref -d | gc .*--prune=now| tag -d | worktree remove .*-f",
    "discards commits or files",
  ],
  [
    "git",
    "(?i) config .*(core\\.(hookspath|sshcommand|fsmonitor|pager|editor)|alias\\.\\S+ !|credential\\.)",
    "changes which programs git starts",
  ],
  ["curl|wget|http|https|xh", " (-X ?|--request[ =]|)DELETE ", "deletes something at an address"],
  ["curl", " (-d|--data\\S*|-F|--form)[ =]?\\S*@| (-T|--upload-file)[ =]?\\S", "sends files to an address"],
  ["wget", " --(post|body)-file", "sends files to an address"],
  ["scp|sftp|rsync|rclone", " [\\w.-]+(@[\\w.-]+)?:\\S* $", "copies files to another machine"],
  [
    "nc|ncat|netcat|socat",
    " (-\\w*[elc]\\w*|\\S*(exec|system|listen):\\S*|--exec|--listen) ",
    "opens a shell or a port",
  ],
  ["ssh", " -\\w*[RLDw] ", "opens a tunnel"],
  ["ssh-copy-id", "", "lets somebody sign in"],
  ["ngrok|cloudflared|localtunnel|lt", " (http|tcp|tunnel|--port) ", "opens a tunnel"],
  [
    "kubectl|oc|k",
    " (delete|drain|replace .*--force|scale .*--replicas[= ]0|rollout undo|patch|exec) ",
    "removes or changes infrastructure",
  ],
  [
    "terraform|tofu|terragrunt|pulumi|cdk",
    " (destroy|apply|up|taint|state rm|import) ",
    "removes or changes infrastructure",
  ],
  ["helm", " (uninstall|delete|rollback|upgrade) ", "removes or changes infrastructure"],
  [
    "docker|podman|nerdctl|docker-compose",
    " (rm|rmi|kill|prune|push|down .*-v|down .*--volumes|volume rm|network rm|swarm leave) ",
    "removes or publishes containers",
  ],
  [
    "docker|podman|nerdctl",
    " (--privileged|--pid[= ]host|--cap-add[= ]\\S+|(-v|--volume)[= ]?/:\\S+|\\S*docker\\.sock\\S*) ",
    "gives a container the machine",
  ],
  [
    "aws|gcloud|az|gsutil|doctl|heroku|flyctl|fly|eksctl|vercel|netlify|firebase|supabase|wrangler|gh|glab|ibmcloud",
    " (rb|rm|del|delete\\S*|remove\\S*|terminate\\S*|destroy|purge\\S*|deregister\\S*|pg:reset|db reset|apps:destroy|put-bucket-\\S+|put-object-acl|create-access-key|attach-\\S+-policy|detach-\\S+|schedule-key-deletion|stop-logging|sync .*--delete|add-iam-policy-binding|secret set|repo archive|-X DELETE|--method DELETE|--acl public-\\S+) ",
    "removes or opens up what runs elsewhere",
  ],
  ["gh", " auth token ", "prints a secret"],
  ["gh|glab", " (pr merge|mr merge|release create|workflow run) ", "publishes something"],
  [
    "vercel|netlify|firebase|fly|flyctl|serverless|sls|gcloud|wrangler|cap|eb",
    " (deploy|--prod|publish) ",
    "publishes something",
  ],
  ["python[\\d.]*", " -m (http\\.server|SimpleHTTPServer|smtpd|pty) ", "opens a shell or a port"],
  ["tar|unzip|bsdtar|cpio", " (-C|--directory|-d)[ =]?/ ", "writes into the system"],
  ["chattr|setfacl|setcap|setfattr", " \\S", "changes how files are protected"],
  ["ip|ifconfig|route|nmcli|networksetup", " (down|del|delete|flush|off|add) ", "changes the network"],
  [
    "nmap|masscan|hydra|sqlmap|john|hashcat|msfconsole|msfvenom|nikto|tcpdump|ettercap|arpspoof|mimikatz|responder|xmrig|minerd",
    "",
    "is a tool for attacks",
  ],
  [
    "systemctl|service|launchctl|sc|sc\\.exe|rc-service",
    " (stop|disable|mask|unload|bootout|remove|delete) ",
    "stops services",
  ],
  [
    "systemctl|launchctl|update-rc\\.d|schtasks",
    " (enable|load|bootstrap|defaults|/create) ",
    "changes what starts by itself",
  ],
  ["crontab", " (-r|-e|-|[^-\\s]\\S*) ", "changes what starts by itself"],
  ["at|batch", " (now|-f|\\d|noon|midnight|teatime)", "starts something later"],
  ["shutdown|reboot|halt|poweroff|stop-computer|restart-computer", "", "stops the machine"],
  ["init|telinit", " [06] ", "stops the machine"],
  ["killall|pkill|taskkill|stop-process|xkill", "", "ends processes"],
  ["kill", " (-9|-KILL|-SIGKILL|-s (9|KILL)|-1|-- -1) ", "ends processes"],
  [
    "iptables|ip6tables|nft|ufw|firewall-cmd|netsh|pfctl",
    " (-F|--flush|-X|-P|-D|-A|-I|disable|reset|delete|allow|flush|off|-d|--add-\\S+|--remove-\\S+) ",
    "changes the firewall",
  ],
  ["setenforce", " (0|permissive) ", "turns protection off"],
  ["auditctl|aa-disable|aa-teardown|set-mppreference|spctl|csrutil", "", "turns protection off"],
  ["sysctl", " (-w|\\S+=\\S+) ", "changes the system"],
  [
    "modprobe|insmod|rmmod|kexec|mount|umount|swapoff|chroot|bcdedit|vssadmin|wbadmin|cipher",
    " \\S",
    "changes the system",
  ],
  ["reg|regedit", " (add|delete|import|/s) ", "changes the system"],
  [
    "useradd|adduser|usermod|userdel|deluser|groupadd|groupmod|groupdel|gpasswd|passwd|chpasswd|visudo|chsh|net",
    "",
    "changes accounts",
  ],
  ["history", " -(c|w|d) ", "hides what was done"],
  ["unset", " HIST\\w+ ", "hides what was done"],
  ["journalctl", " --(vacuum|rotate)\\S*", "hides what was done"],
  [
    "npm|pnpm|yarn|cargo|poetry|uv|gem|twine|flit|hatch|pod|mvn|dotnet",
    " (publish|unpublish|deprecate|upload|yank|push|deploy|owner|token|dist-tag) ",
    "publishes something",
  ],
  [
    "pip3?|pipx|npm|pnpm|yarn|uv|gem|go",
    " (i|install|add|get|tool install) .*((git\\+|https?:|ssh:|file:)\\S+|--(extra-)?index-url|--registry|--trusted-host)",
    "installs from an address",
  ],
  ["npm|pip3?|yarn|pnpm", " config set ", "installs from an address"],
  ["pip3?|pipx", " uninstall ", "removes software"],
  [
    "apt|apt-get|aptitude|yum|dnf|pacman|zypper|apk|snap|brew|dpkg|rpm|flatpak|choco|winget|port",
    " (remove|purge|autoremove|erase|uninstall|del|-R\\w*|-r|-P|-e|--purge|--erase|--remove) ",
    "removes software",
  ],
  ["redis-cli", "(?i) (flushall|flushdb|shutdown|config set|debug) ?", "empties or stops a database"],
  ["dropdb|dropuser|pg_resetwal", " \\S", "empties or drops a database"],
  ["mysqladmin|mongorestore|pg_restore", " (drop|--drop|--clean|-c) ", "empties or drops a database"],
  ["mongo|mongosh", "(?i)(dropdatabase|\\.drop\\(|deletemany|remove\\(\\s*\\{\\s*\\})", "empties or drops a database"],
  [
    "python[\\d.]*|perl|ruby|node|deno|bun|php|lua|osascript|powershell|pwsh",
    " (-|-\\w*[cer]\\w*|eval|--eval|-command|-enc\\w*) .*(os\\.system|subprocess|popen|shutil|rmtree|os\\.(remove|unlink|rmdir|exec)|unlink|rm_rf|socket|child_process|rmsync|rmdirsync|fs\\.rm|exec\\(|eval\\(|system\\(|`|b64decode|base64|__import__|pty\\.spawn|rm -|remove-item|downloadstring|invoke-|iex|do shell script|file_put_contents|-enc)",
    "runs code that deletes, connects or starts programs",
  ],
  ["powershell|pwsh", "(?i) -(enc\\w*|ec|e) ", "runs code that cannot be read here"],
  ["iex|invoke-expression|set-executionpolicy", "", "runs text as a program"],
  ["eval|source|\\.", "[$`]|<\\(", "runs text as a program"],
  ["certutil|bitsadmin|mshta|regsvr32|rundll32|wmic", " \\S", "starts what it downloads"],
  ["gpg2?", " --(delete-\\S+|export-secret\\S*)", "deletes or hands out keys"],
  ["openssl", " enc .*-(pass|k|kfile) ?", "encrypts files"],
  [
    "alembic|flask|prisma|rails|rake|artisan|manage\\.py|knex|sequelize|sequelize-cli|flyway|liquibase|dbmate",
    " (downgrade|migrate reset|db:(drop|reset|rollback\\S*)|migrate:(fresh|reset|rollback)|flush|reset_db|clean|drop|dropall|undo|undo:all) ",
    "empties or drops a database",
  ],
  [
    "security|secret-tool|pass|op|vault|keyring",
    " (find-\\S+-password|lookup|show|read|get|kv get|delete|dump-keychain) ",
    "hands out secrets",
  ],
];
/** @type {string} */
export const DATABASE_CLIENTS =
  "(?i)[ /](psql|mysql|mariadb|sqlite3|sqlcmd|duckdb|clickhouse-client|bq|snowsql|cockroach|sqlplus)(\\.exe)?$";
/** @type {string[][]} */
export const WHOLE = [
  [
    "\\b(curl|wget|fetch|base64|xxd|openssl|gunzip|zcat|iwr|irm|invoke-webrequest|invoke-restmethod)\\b[^\\n]{0,400}\\|\\s{0,9}(sudo\\s{1,9})?(\\S{0,60}/)?((ba|z|da|k|fi)?sh|python[\\d.]{0,5}|perl|ruby|node|php|iex)\\b",
    "runs what it downloads or decodes",
  ],
  [
    "\\b((ba|z|da|k)?sh|source|eval|python[\\d.]{0,5})\\b[^\\n|]{0,60}[<$]\\(\\s{0,9}(curl|wget|base64|echo)\\b",
    "runs what it downloads or decodes",
  ],
  ["(^|[\\s;&|])\\.?\\s{0,3}<\\(\\s{0,9}(curl|wget)\\b", "runs what it downloads or decodes"],
  [
    "\\b(curl|wget)\\b[^\\n]{0,400}(;|&&|\\n)[^\\n]{0,200}(\\bchmod \\S{0,9}x|(^|[\\s;&|])(ba|z|da)?sh [^-\\s]|(^|[\\s;&|])\\./)",
    "runs what it downloads or decodes",
  ],
  ["/dev/(tcp|udp)/", "opens a connection"],
  ["(^|[\\s;&|])[\\w:]{1,20}\\s{0,3}\\(\\)\\s{0,3}\\{[^}\\n]{0,80}\\|[^}\\n]{0,80}&", "starts itself again and again"],
  ["\\|\\s{0,9}(\\S{0,60}/)?(nc|ncat|netcat|socat|mail|mailx|sendmail|ssh)\\s", "sends what it read away"],
  [
    "\\b(LD_PRELOAD|LD_LIBRARY_PATH|DYLD_INSERT_LIBRARIES|BASH_ENV|PROMPT_COMMAND|PYTHONSTARTUP|GIT_SSH_COMMAND|NODE_OPTIONS|HISTFILE)=",
    "changes what programs load or record",
  ],
];
/** @type {string} */
export const SECRET_PATHS =
  "(?i)(^|[\\\\/])(\\.env(\\.[\\w-]+)?|\\.ssh|\\.aws|\\.gnupg|\\.netrc|\\.npmrc|\\.pypirc|\\.kube|\\.docker|\\.azure|\\.git-credentials|\\.pgpass|\\.my\\.cnf|\\.vault-token|\\.htpasswd|id_(rsa|dsa|ecdsa|ed25519)|authorized_keys|shadow|gshadow|credentials(\\.json|\\.csv|\\.ini)?|secrets?\\.(ya?ml|json|toml|env|ini)|service[_-]account[\\w-]*\\.json|kubeconfig|wallet\\.dat|login data|logins\\.json|key4\\.db|\\.(bash|zsh|psql|mysql|python)_history|[\\w.-]+\\.(pem|key|p12|pfx|kdbx|jks|keystore))($|[\\\\/])|\\.config/(gcloud|gh|op)(/|$)|^/proc/[\\w*]+/(environ|mem)$|/secrets/kubernetes\\.io/|^/run/secrets(/|$)";
/** @type {string} */
export const SYSTEM_PATHS =
  "(?i)^(/private)?/etc/(passwd|group|shadow|sudoers|crontab|cron\\.|cron|anacrontab|ssh|pam\\.|ld\\.so\\.|hosts$|profile|environment|rc\\.local|init\\.d|systemd|fstab|security|krb5|ssl/private|resolv\\.conf|selinux|default/grub)|^/var/spool/(cron|at)|^/boot(/|$)|^/dev/(sd|nvme|hd|vd|xvd|disk|mmcblk|mem|kmem|port)|^/proc/(sysrq-trigger|sys/)|^/sys/|docker\\.sock$|^[a-z]:\\\\windows\\\\|\\\\system32\\\\|^/(usr/)?(s?bin|lib|lib64)/|^/usr/local/s?bin/|^/library/launch";
/** @type {string} */
export const SELF_STARTING_PATHS =
  "(?i)(^|[\\\\/])(\\.git[\\\\/](hooks[\\\\/]|config$)|\\.husky[\\\\/]|\\.github[\\\\/]workflows[\\\\/]|\\.gitlab-ci\\.ya?ml$|\\.circleci[\\\\/]|jenkinsfile$|\\.(bashrc|bash_profile|bash_login|bash_logout|zshrc|zprofile|zshenv|profile|gitconfig|pre-commit-config\\.yaml|envrc|vimrc|inputrc)$|\\.config[\\\\/](autostart|systemd|fish)[\\\\/]|launch(agents|daemons)[\\\\/]|start menu[\\\\/]programs[\\\\/]startup|\\.vscode[\\\\/](tasks|settings)\\.json$|\\.claude[\\\\/]|\\.cursor[\\\\/]|\\.mcp\\.json$|conftest\\.py$|sitecustomize\\.py$|\\S+\\.pth$)";
/** @type {string} */
export const SQL_START =
  "(?i)^[\\s(]*(with|select|insert|update|delete|drop|truncate|alter|create|grant|revoke|merge|copy|exec|execute|call|attach|pragma|replace|load|shutdown|kill|set|begin|start|vacuum|reindex|use|rename|explain|do|flush|purge|reset|import)\\b";
/** @type {string[][]} */
export const STATEMENTS = [
  ["^(drop|truncate|purge)\\b", "drops or empties something"],
  [
    "^alter\\b.*\\bdrop\\b|^alter (user|role|login|system|database)\\b|^rename table\\b|^create or replace (function|procedure|trigger)\\b|^create trigger\\b",
    "changes what is stored, or who may",
  ],
  [
    "^(grant|revoke)\\b|^create (user|role|login)\\b|^set (password|role|session authorization)\\b",
    "changes what is stored, or who may",
  ],
  [
    "\\binto (out|dump)file\\b|\\bload_file ?\\(|\\bxp_cmdshell\\b|\\bcopy\\b.*\\b(program|to|from) |\\bpg_(read|ls)\\w*_?file|\\blo_export\\b|\\bload data\\b|\\battach\\b|\\bload_extension\\b|\\bsp_oacreate\\b|\\butl_(http|file)\\b",
    "reads or writes files, or starts programs",
  ],
  [
    "^(shutdown|kill|flush|reset)\\b|^pragma (writable_schema|journal_mode|foreign_keys|secure_delete|trusted_schema) ?=|^set (global|foreign_key_checks|sql_safe_updates)\\b|\\bpg_(terminate|cancel)_backend\\b",
    "changes how the database works",
  ],
  ["\\bpg_sleep ?\\(|\\bbenchmark ?\\(|\\bwaitfor delay\\b", "waits, as attacks do"],
  [
    "\\binformation_schema\\.\\w+.*\\bunion\\b|\\bunion\\b.*\\b(password|passwd|secret|token|information_schema|sqlite_master|pg_shadow|mysql\\.user)\\b|\\bfrom (mysql\\.user|pg_shadow|pg_authid|sys\\.sql_logins)\\b",
    "reads accounts or secrets",
  ],
];
