"""The effect of a call on folders, seen before it happens: compared, kept, applied as a whole, taken back.

Pure: `call_effect` (what an effect is, its hash and its opposite), `effect_text` (what people read) and
`apply_steps` (in which order paths change). At the edge: `path_state` reads one path, `overlay_scan` finds
what a run in an overlay changed, `effect_store` keeps effects, and `effect_writer` applies them.
"""
