"""The tools, resources and prompts that members of a space offer, and the names under which clients see them.

`OfferTable` keeps what members listed, `NameTable` and `UriTable` who owns a shown name or URI, and
`OfferSearch` finds offers. This is not the contract catalog of XProtocol (`contract_catalog`): offers come
and go with their members, and a shown name must never pass to another owner; contracts are published by one
endpoint, have kinds and versions, and are found with `xp.schema.describe`. The two share the search index.
"""
