"""Where the values of a call came from: who said each one first, where, and whether that is enough.

A space saw every message, so it can tell for each argument whether a person said it, the operator configured
it, a trusted look-up returned it, only others wrote it, or nobody said it.

    memory = OriginMemory(traits)                 # what each tool does, in the operator's words
    memory.see(envelope, person=…, at=…)          # every accepted envelope, in order
    verdict = verdict_on(memory, call, now)       # `asks`, `why`, `arguments`, `private`, `task`
    payload_of(verdict, agent=…)                  # the `moot/origins` message that tells everybody

A person confirms a value or a source by `moot/endorse` (`endorsement`). Pure: no input or output, no clock.
"""
