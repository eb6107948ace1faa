"""Ways into Draftwood from other engines: the only files that know their interfaces."""
