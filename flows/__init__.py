"""The one place where the rooms are joined."""
