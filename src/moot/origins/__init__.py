"""Where the values of a call came from: who said each one first, where, and whether that is enough.

A space saw every message, so it can tell for each argument whether a person said it, the operator configured
it, a trusted look-up returned it, only others wrote it, or nobody said it.

    memory = OriginMemory(traits)                 # what each tool does, in the operator's words
    memory.see(envelope, person=…, at=…)          # every accepted envelope, in order; costs nearly nothing
    verdict = verdict_on(memory, call, now)       # `asks`, `why`, `arguments`, `private`, `task`
    describe_origin(argument, now=…, agent=…)     # "you said this 2 min ago"

A person confirms a value or a source by `moot/endorse` (`endorsement`). Pure: no input or output, no clock.
Nothing decides by it yet: see "Not yet" in decisions 0179 and 0181.
"""
