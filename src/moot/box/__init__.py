"""A box: what confines a tool server that is started here.

Pure: `box_plan` (what a box allows, as arguments of bubblewrap), `syscall_filter` (what its processes may ask
of the kernel) and `host_rules` (where they may connect to). At the edge: `program_paths` looks at the files
of a program, `resource_limits` limits processes, `box_sockets` and `egress_proxy` are the only way out, and
`boxed_child` starts it all. Nothing here falls back: what cannot be confined is not started.
"""
