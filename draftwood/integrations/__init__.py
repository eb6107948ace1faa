"""Integrations: Draftwood's methods behind other libraries' interfaces."""
