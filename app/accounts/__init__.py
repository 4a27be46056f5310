"""Tenants and their API keys. Only a key's hash is stored; its secret is shown once, at creation."""
