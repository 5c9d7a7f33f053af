"""Carries out a plan: embeds texts, replays, writes tables, audits and publishes them."""
