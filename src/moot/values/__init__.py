"""What texts in arguments mean: shell commands, paths, URLs, addresses, SQL, ids, amounts, times, prose.

Each kind has a strict reader that cuts a text into atoms (`atoms`), or refuses it. Rules say what they allow
as templates over these atoms (`templates`): `git log -n <1..50>`, `/srv/reports/<name>.txt`. A text that its
kind cannot read matches no template, so people are asked.
"""
